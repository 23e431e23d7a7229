/** The text as it grows: each new token with what else it might have been and what it looked at. */

import { useState } from "preact/hooks";
import { useAnswer } from "../../parts/answer";
import { Bars } from "../../parts/bars";
import { formatPercent } from "../../parts/format";
import { TokenTable } from "../../parts/tokens";
import type { Source } from "../../source/source";
import { chance, type Made } from "./generation";

export interface GrowingProps {
  source: Source;
  made: readonly Made[];
  text: string;
  busy: boolean;
  /** The whole as a recording, once there is one. */
  recorded: string | null;
  onOpen(recording: string): void;
}

export function Growing({ source, made, text, busy, recorded, onOpen }: GrowingProps) {
  const [held, hold] = useState<number | null>(null);
  const at = held !== null && held < made.length ? held : made.length - 1;
  const shown = made[at]!;
  const tokens = useAnswer(recorded ? async () => new TokenTable(await source.tokens(recorded)) : null, [
    source,
    recorded,
  ]);
  const move = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    hold(Math.min(made.length - 1, Math.max(0, at + by)));
  };
  return (
    <section class="panel growing" aria-label="What the model adds" data-testid="growing">
      <p class="growing-text">
        <span class="soft">{text}</span>
        <span
          role="listbox"
          aria-label="New tokens"
          aria-orientation="horizontal"
          aria-busy={busy}
          tabIndex={0}
          aria-activedescendant={`made-${at}`}
          onKeyDown={move}
        >
          {made.map((one, i) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the list box above takes the keys
            <span
              key={i}
              id={`made-${i}`}
              role="option"
              class="growing-token"
              aria-selected={i === at}
              data-testid={`made-${i}`}
              style={{ "--sure": (chance(one) ?? 0).toFixed(2) }}
              onClick={() => hold(i)}
            >
              {one.token}
            </span>
          ))}
        </span>
        {busy && <i class="growing-caret" aria-hidden="true" />}
      </p>
      <p class="small soft">
        The stronger the line under a new token, the surer the model was. Choose one, with ← and → too, to see what else
        it might have been.
      </p>
      <div class="growing-two">
        <Bars
          title={`New token ${at + 1}: what it might have been`}
          testid="alternatives"
          top={1}
          rows={shown.top.map(({ token, probability }) => ({
            label: token,
            value: probability,
            marked: token === shown.token,
          }))}
          format={formatPercent}
        />
        <Looked shown={shown} tokens={tokens.value} />
      </div>
      {recorded && (
        <button
          type="button"
          class="primary growing-open"
          data-testid="open-recording"
          onClick={() => onOpen(recorded)}
        >
          Open all of it in Map
        </button>
      )}
      <span class="visually-hidden" role="status">
        {busy ? "" : `The model added ${made.length} tokens.`}
      </span>
    </section>
  );
}

/** Keys come as positions; until the recording is there, some have no words yet. */
function Looked({ shown, tokens }: { shown: Made; tokens: TokenTable | null }) {
  if (shown.attended.length === 0) {
    return (
      <p class="small soft">
        The first new token was read together with your text: what it looked at is in the recording.
      </p>
    );
  }
  return (
    <Bars
      title="Where it looked: mean over all heads"
      testid="attended"
      rows={shown.attended.map(({ key, weight, token }) => {
        const word = token ?? tokens?.raw(key);
        return word === undefined
          ? { label: `token ${key}`, value: weight }
          : { label: word, position: key, value: weight };
      })}
      format={(value) => value.toFixed(3)}
    />
  );
}
