/** Places of common tokens, and what stands between them. */

import type { Alignment } from "../../source/source";

type Runs = Alignment["keys"];

/** How many tokens both texts have. */
export function common(runs: Runs): number {
  return runs.reduce((sum, run) => sum + run.length, 0);
}

/** Where the i-th common token stands in the first and in the second text. */
export function placeOf(runs: Runs, i: number): [first: number, second: number] {
  let left = i;
  for (const { first, second, length } of runs) {
    if (left < length) return [first + left, second + left];
    left -= length;
  }
  return [-1, -1];
}

/** A stretch that the texts do not share: half open in both; one side may be empty. */
export interface Gap {
  first: [start: number, stop: number];
  second: [start: number, stop: number];
}

/** What is between the runs, before the first and behind the last. */
export function gaps(runs: Runs, first: number, second: number): Gap[] {
  const found: Gap[] = [];
  let [a, b] = [0, 0];
  for (const run of [...runs, { first, second, length: 0 }]) {
    if (run.first > a || run.second > b) found.push({ first: [a, run.first], second: [b, run.second] });
    [a, b] = [run.first + run.length, run.second + run.length];
  }
  return found;
}

/** A rectangle of common tokens around one of them, `by` times as large; never beyond the map, never below `least`. */
export function zoomed(
  [start, stop]: readonly [number, number],
  at: number,
  by: number,
  count: number,
  least = 8,
): [number, number] {
  const length = Math.min(count, Math.max(Math.min(least, count), Math.round((stop - start) * by)));
  const from = Math.max(0, Math.min(count - length, Math.round(at + 0.5 - length / 2)));
  return [from, from + length];
}
