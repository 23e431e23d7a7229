/** One query's way through attention, in one shape that the figures draw. */

import type { TokenProbability } from "../../source/source";

export const NAMES = [
  "tokens",
  "projections",
  "scores",
  "scaled",
  "masked",
  "weights",
  "mix",
  "parallel",
  "heads",
  "next",
] as const;
export type StepName = (typeof NAMES)[number];

export interface Key {
  token: string;
  position: number;
  /** Whether the query may see it. */
  allowed: boolean;
}

export interface Matrix {
  /** null where the mask forbids it. */
  values: (number | null)[][];
  rows: string[];
  columns: string[];
}

export interface Walk {
  query: string;
  /** Tokens that can be followed: those of a worked example, empty for a model's head. */
  queries: string[];
  /** The query's row in `keys`, −1 where it is not one of them. */
  self: number;
  keys: Key[];
  /** Keys the query may see in all, shown or not. */
  visible: number;
  /** Numbers in one head's query and in one head's value; fewer may have arrived. */
  dim: number;
  valueDim: number;
  /** Query heads that share one head of keys and values. */
  group: number;
  /** What scores are multiplied by: 1/√d unless the model says otherwise. */
  scale: number;
  q: number[];
  k: number[][];
  v: number[][];
  scores: number[];
  scaled: number[];
  masked: number[];
  weights: number[];
  /** How the number of each key follows from the step before. */
  worked: Record<"scores" | "scaled" | "masked" | "weights", string[]>;
  output: number[];
  hasMask: boolean;
  parallel: Matrix | null;
  /** Which row of `parallel` is this query. */
  parallelRow: number;
  /** Length of each head's part of the concatenated output. */
  heads: number[] | null;
  next: TokenProbability[] | null;
}

/** The steps a walk has something to show for. */
export function stepsOf(walk: Walk): StepName[] {
  return NAMES.filter((name) => {
    if (name === "masked") return walk.hasMask;
    if (name === "parallel") return walk.parallel !== null;
    if (name === "heads") return walk.heads !== null;
    if (name === "next") return walk.next !== null;
    return true;
  });
}

/** Rows to show, in the order of the text: the heaviest keys, the query's own and its neighbour, two it may not see. */
export function pick(walk: Walk, most: number, forbidden = 2): number[] {
  const order = walk.keys.map((_, i) => i);
  const allowed = order.filter((i) => walk.keys[i]!.allowed);
  const hidden = order.filter((i) => !walk.keys[i]!.allowed).slice(0, forbidden);
  const must = [walk.self, walk.self - 1].filter((i) => allowed.includes(i));
  const heavy = allowed.toSorted((a, b) => (walk.weights[b] ?? 0) - (walk.weights[a] ?? 0));
  const seen = [...new Set([...must, ...heavy])].slice(0, most);
  return [...seen, ...hidden].toSorted((a, b) => a - b);
}

/** How many keys the query may see and `shown` leaves out. */
export function left(walk: Walk, shown: readonly number[]): number {
  return walk.visible - shown.filter((i) => walk.keys[i]!.allowed).length;
}

/** Fill gaps of one or two tokens: to say that they are left out takes more room than they do. */
export function filled(walk: Walk, shown: readonly number[]): number[] {
  return shown.flatMap((i, n) => {
    const above = shown[n - 1];
    const gap = above === undefined ? 0 : i - above - 1;
    const close = above !== undefined && gapBefore(walk, shown, n) === gap;
    return close && gap <= 2 ? [...Array.from({ length: gap }, (_, k) => above + 1 + k), i] : [i];
  });
}

/** Tokens of the text between a shown row and the one above it. */
export function gapBefore(walk: Walk, shown: readonly number[], n: number): number {
  const [here, above] = [walk.keys[shown[n]!], walk.keys[shown[n - 1]!]];
  return here && above ? here.position - above.position - 1 : 0;
}

/** Index of the heaviest key. */
export function heaviest(weights: readonly number[]): number {
  return weights.reduce((best, w, i) => (w > (weights[best] ?? -1) ? i : best), 0);
}
