import type { ComponentChildren } from "preact";

import type { TokenTable } from "../../parts/tokens";
import type { Alignment, Box } from "../../source/source";
import { placeOf } from "./align";

/** Tokens have names of their own where no more than so many are on a side; else a few positions are named. */
const NAMED = 40;
const TICKS = 5;

interface AxesProps {
  box: Box;
  alignment: Alignment;
  /** Of the first recording: names of tokens that both have. */
  tokens: TokenTable;
  children: ComponentChildren;
}

/** The names of queries and keys around a picture of common tokens. */
export function Axes({ box, alignment, tokens, children }: AxesProps) {
  const { q0, q1, k0, k1 } = box;
  const query = (i: number): string => tokens.label(placeOf(alignment.queries, i)[0]);
  const key = (i: number): string => tokens.label(placeOf(alignment.keys, i)[0]);
  return (
    <div class="difference-axes">
      <span class="difference-corner small" aria-hidden="true">
        <span class="corner-key">keys →</span>
        <span class="corner-query">queries ↓</span>
      </span>
      <div class="difference-top" aria-hidden="true">
        {marks(k0, k1).map(({ at, share }) => (
          <span key={at} style={{ left: `${100 * share}%` }}>
            {key(at)}
          </span>
        ))}
      </div>
      <div class="difference-left" aria-hidden="true">
        {marks(q0, q1).map(({ at, share }) => (
          <span key={at} style={{ top: `${100 * share}%` }}>
            {query(at)}
          </span>
        ))}
      </div>
      {children}
    </div>
  );
}

/** Which of the tokens from `start` up to `stop` are named, and where their middle is on the axis. */
export function marks(start: number, stop: number): { at: number; share: number }[] {
  const count = stop - start;
  const all = count <= NAMED;
  return Array.from({ length: all ? count : TICKS }, (_, n) => {
    const at = all ? n : Math.round((n * (count - 1)) / (TICKS - 1));
    return { at: start + at, share: (at + 0.5) / count };
  });
}
