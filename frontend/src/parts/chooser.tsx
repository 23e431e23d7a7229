/** Choose one token of the text: step, click a neighbour, or find a word. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { TokenLabel, type TokenTable } from "./tokens";
import "./charts.css";

export interface ChooserProps {
  role: "query" | "key";
  name: string;
  tokens: TokenTable;
  value: number;
  /** Positions from 0 to this one can be chosen. */
  last: number;
  onChange(position: number): void;
}

const AROUND = 10;

/** Where to begin in a text: late enough to have a past, early enough for that past to fit a page. */
export function startAt(queries: number): number {
  return Math.min(queries - 1, 60);
}

export function Chooser({ role, name, tokens, value, last, onChange }: ChooserProps) {
  const move = (to: number) => onChange(Math.min(last, Math.max(0, to)));
  return (
    <div class={`chooser chooser-${role}`} role="group" aria-label={name} data-testid={`choose-${role}`}>
      <div class="chooser-bar">
        <span class="chooser-name">{name}</span>
        <button
          type="button"
          class="icon-button"
          aria-label={`${name}: one token back`}
          disabled={value <= 0}
          onClick={() => move(value - 1)}
        >
          ‹
        </button>
        <TokenLabel tokens={tokens} i={value} role={role} />
        <button
          type="button"
          class="icon-button"
          aria-label={`${name}: one token on`}
          disabled={value >= last}
          onClick={() => move(value + 1)}
        >
          ›
        </button>
        <Find name={name} tokens={tokens} from={value + 1} last={last} onFound={move} />
      </div>
      <Strip tokens={tokens} value={value} last={last} onChange={move} />
    </div>
  );
}

function Find({
  name,
  tokens,
  from,
  last,
  onFound,
}: {
  name: string;
  tokens: TokenTable;
  from: number;
  last: number;
  onFound(i: number): void;
}) {
  const [missing, setMissing] = useState(false);
  const find = (event: Event & { currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    const wanted = String(new FormData(event.currentTarget).get("wanted") ?? "");
    const found = tokens.find(wanted, from % tokens.count).find((i) => i <= last);
    setMissing(found === undefined && wanted !== "");
    if (found !== undefined) onFound(found);
  };
  return (
    <form onSubmit={find} role="search">
      <input
        type="search"
        name="wanted"
        placeholder="find…"
        title="A word, or the number of a token"
        aria-label={`Find ${name.toLowerCase()}`}
        aria-invalid={missing}
        onInput={() => setMissing(false)}
      />
      {missing && (
        <span class="small soft" role="status">
          {" "}
          not found
        </span>
      )}
    </form>
  );
}

function Strip({
  tokens,
  value,
  last,
  onChange,
}: {
  tokens: TokenTable;
  value: number;
  last: number;
  onChange(i: number): void;
}) {
  const start = Math.max(0, Math.min(value - AROUND, last - 2 * AROUND));
  const stop = Math.min(last, start + 2 * AROUND);
  const near = Array.from({ length: stop - start + 1 }, (_, i) => start + i);
  const strip = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const chosen = strip.current?.querySelector<HTMLElement>("[aria-pressed=true]");
    if (strip.current && chosen)
      strip.current.scrollLeft = chosen.offsetLeft + (chosen.offsetWidth - strip.current.clientWidth) / 2;
  });
  return (
    <div class="chooser-strip" ref={strip}>
      {near.map((i) => (
        <button
          key={i}
          type="button"
          tabIndex={-1}
          aria-pressed={i === value}
          aria-label={`token ${i}: ${tokens.label(i)}`}
          onClick={() => onChange(i)}
        >
          {tokens.label(i)}
        </button>
      ))}
    </div>
  );
}
