/** A few choices side by side, one of them taken. */
export function Segmented<T extends string>({
  name,
  value,
  values,
  onChange,
}: {
  name: string;
  value: T;
  values: readonly (readonly [T, string])[];
  onChange(value: T): void;
}) {
  return (
    <span class="segmented" role="group" aria-label={name}>
      {values.map(([each, label]) => (
        <button
          key={each}
          type="button"
          aria-pressed={value === each}
          data-testid={`${name.toLowerCase()}-${each}`}
          onClick={() => onChange(each)}
        >
          {label}
        </button>
      ))}
    </span>
  );
}
