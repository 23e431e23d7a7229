/** One cell of each step worked out as a person would write it down. */

import { figure } from "../../parts/grid";

const TERMS = 4;

/** a · b as a sum of products, the middle of a long one left out. */
export function products(a: readonly number[], b: readonly number[], result: number, inAll = a.length): string {
  const terms = a.slice(0, TERMS).map((x, i) => `${factor(x)} × ${factor(b[i] ?? NaN)}`);
  const rest = Math.max(inAll, a.length) - terms.length;
  if (rest > 0) terms.push(`… ${rest} more`);
  return `${terms.join(" + ")} = ${figure(result, 3)}`;
}

/** A score made smaller by 1/√d, or by whatever the model uses. */
export function scaling(score: number, scaled: number, dim: number, scale: number): string {
  const root = Math.sqrt(dim);
  if (Math.abs(scale * root - 1) < 1e-6) {
    return `${figure(score, 3)} / √${dim} = ${figure(score, 3)} / ${figure(root, 2)} = ${figure(scaled, 3)}`;
  }
  return `${figure(score, 3)} × ${figure(scale, 4)} = ${figure(scaled, 3)}`;
}

/** One weight: e to the score, over the sum of the row. Shifted by the largest score where e^s would be huge. */
export function share(score: number, weight: number, largest: number): string {
  if (score === -Infinity) return "e to the power of −∞ is 0, so this key weighs exactly 0";
  const shift = Math.abs(largest) > 12 ? largest : 0;
  const power = Math.exp(score - shift);
  const over = weight > 0 ? power / weight : NaN;
  const top = `e^${figure(score - shift, 2)} / (sum over all keys)`;
  return `${top} = ${figure(power, 3)} / ${figure(over, 3)} = ${figure(weight, 3)}${shift ? ", the largest score subtracted first" : ""}`;
}

function factor(value: number): string {
  const text = figure(value, 2);
  return text.startsWith("−") ? `(${text})` : text;
}
