import type { Grid } from "../../source/source";
import type { TextLayout } from "./layout";

/** How brightly tokens light up. */

export interface Lit {
  index: number;
  weight: number;
}

/** Several heads as one row: their mean, or the heaviest of them. */
export function combine(grid: Grid, how: "mean" | "max"): Float32Array {
  const { rows, cols, values } = grid;
  const out = new Float32Array(cols);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const value = values[r * cols + c]!;
      if (how === "mean") out[c]! += value / rows;
      else if (value > out[c]!) out[c] = value;
    }
  }
  return out;
}

/** The heaviest tokens, heaviest first; one pass, since there may be a hundred thousand. */
export function heaviest(weights: Float32Array, count: number): Lit[] {
  const top: Lit[] = [];
  for (let i = 0; i < weights.length; i++) {
    const weight = weights[i]!;
    if (!(weight > 0) || (top.length === count && weight <= top[top.length - 1]!.weight)) continue;
    let at = top.length;
    while (at > 0 && top[at - 1]!.weight < weight) at--;
    top.splice(at, 0, { index: i, weight });
    if (top.length > count) top.pop();
  }
  return top;
}

/** Opacity of a token's light: 0 … 1; on a log scale down to a thousandth of the heaviest. */
export function brightness(weight: number, most: number, scale: "linear" | "log"): number {
  if (!(weight > 0) || !(most > 0)) return 0;
  const share = Math.min(1, weight / most);
  return scale === "linear" ? share : Math.max(0, 1 + Math.log10(share) / 3);
}

/** The brightest token of every line that falls on one of so many rows of pixels. */
export function heat(
  layout: TextLayout,
  light: Float32Array,
  most: number,
  scale: "linear" | "log",
  rows: number,
): Float32Array {
  const found = new Float32Array(rows);
  const lines = layout.lines.length;
  for (let i = 0; i < layout.lineOf.length; i++) {
    const bright = brightness(light[i] ?? 0, most, scale);
    if (bright === 0) continue;
    const first = Math.floor((layout.lineOf[i]! * rows) / lines);
    const last = Math.max(first + 1, Math.ceil(((layout.lineOf[i]! + 1) * rows) / lines));
    for (let row = first; row < Math.min(rows, last); row++) found[row] = Math.max(found[row]!, bright);
  }
  return found;
}

export function entropy(weights: Float32Array): number {
  let sum = 0;
  for (const weight of weights) if (weight > 0) sum -= weight * Math.log(weight);
  return sum;
}
