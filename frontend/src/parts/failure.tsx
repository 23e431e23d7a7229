/** What went wrong, in a sentence, and a way to try again where that may help. */
export function Failure({ text, onRetry, small = false }: { text: string; onRetry?: () => void; small?: boolean }) {
  return (
    <div class={small ? "failure small" : "notice failure"} role="alert" data-testid="failure">
      <p>{text}</p>
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}
