/** One cell of each step worked out as a person would write it down: what is printed adds up. */

import { figure } from "../../parts/grid";

const TERMS = 4;
/** Decimals that are tried until the printed numbers give the printed result. */
const DIGITS = [2, 3, 4, 5, 6, 7];
const RESULT = 3;

/** a · b as a sum of products: the largest of a long one, and the rest in one number. */
export function products(a: readonly number[], b: readonly number[], result: number, inAll = a.length): string {
  const size = (i: number): number => Math.abs((a[i] ?? 0) * (b[i] ?? 0));
  const order = a.map((_, i) => i).toSorted((i, j) => size(j) - size(i));
  const many = Math.max(inAll, a.length) > TERMS;
  const kept = (many ? order.slice(0, TERMS) : order).toSorted((i, j) => i - j);
  const rest = result - kept.reduce((sum, i) => sum + a[i]! * (b[i] ?? NaN), 0);
  return equation((digits) => {
    const terms = kept.map((i) => `${factor(a[i]!, digits)} × ${factor(b[i] ?? NaN, digits)}`);
    let value = kept.reduce((sum, i) => sum + read(a[i]!, digits) * read(b[i] ?? NaN, digits), 0);
    if (many) {
      terms.push(`(${Math.max(inAll, a.length) - kept.length} more: ${figure(rest, digits)})`);
      value += read(rest, digits);
    }
    return [terms.join(" + "), value];
  }, result);
}

/** A score made smaller by 1/√d, or by whatever the model uses. */
export function scaling(score: number, scaled: number, dim: number, scale: number): string {
  const root = Math.sqrt(dim);
  const isRoot = Math.abs(scale * root - 1) < 1e-6;
  return equation((digits) => {
    const shown = figure(score, digits + 1);
    if (isRoot) return [`${shown} / √${dim}`, read(score, digits + 1) / root];
    return [`${shown} × ${figure(scale, digits + 2)}`, read(score, digits + 1) * read(scale, digits + 2)];
  }, scaled);
}

/** One weight: e to the score, over the sum of the row. Shifted by the largest score where e^s would be huge. */
export function share(score: number, weight: number, largest: number): string {
  if (score === -Infinity) return "e to the power of −∞ is 0, so this key weighs exactly 0";
  const shift = Math.abs(largest) > 12 ? largest : 0;
  const power = Math.exp(score - shift);
  const over = weight > 0 ? power / weight : NaN;
  const note = shift ? ", the largest score subtracted first" : "";
  for (const digits of DIGITS) {
    // Numbers that are printed with fewer decimals than e^ needs are no reason to print more of them.
    const [top, under] = [figure(power, 3), figure(over, 3)];
    const text = `e^${figure(score - shift, digits)} / (sum over all keys) ≈ ${top} / ${under} ≈ ${figure(weight, RESULT)}${note}`;
    const near = Math.abs(Math.exp(read(score - shift, digits)) - number(top)) <= half(top) * 1.001;
    if (near && follows(number(top) / number(under), figure(weight, RESULT))) return text;
  }
  return `e^${figure(score - shift, 2)} / (sum over all keys) ≈ ${figure(weight, RESULT)}${note}`;
}

/** The left side with as few decimals as give the printed result; `left` says its text and what that comes to. */
function equation(left: (digits: number) => [string, number], result: number): string {
  const right = figure(result, RESULT);
  for (const digits of DIGITS) {
    const [text, value] = left(digits);
    if (follows(value, right)) return `${text} ${Math.abs(value - number(right)) < 1e-12 ? "=" : "≈"} ${right}`;
  }
  return `${left(DIGITS[0]!)[0]} ≈ ${right}, from unrounded factors`;
}

function follows(value: number, right: string): boolean {
  // Not just at a half, where one reader rounds up and another down.
  return Math.abs(value - number(right)) < half(right) * 0.9999;
}

function half(text: string): number {
  return 0.5 * 10 ** -(text.split(".")[1]?.length ?? 0);
}

/** A number as it is printed, read again. */
function read(value: number, digits: number): number {
  return number(figure(value, digits));
}

function number(text: string): number {
  return Number(text.replace("−", "-"));
}

function factor(value: number, digits: number): string {
  const text = figure(value, digits);
  return text.startsWith("−") ? `(${text})` : text;
}
