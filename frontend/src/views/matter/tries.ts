/** What a reader can block, and what came of what they blocked in this visit. */

import { signal } from "@preact/signals";
import type { Knockout, KnockoutRequest } from "../../source/source";
import { type Cut, cutName, cutsRequest, type Label, takesHeads } from "./cuts";

export type Mode = "edge" | "token" | "head" | "several";
export const MODES: readonly Mode[] = ["edge", "token", "head", "several"];

export type Instead = NonNullable<KnockoutRequest["instead"]>;
export const INSTEAD: readonly Instead[] = ["zero", "mean", "resample"];

export interface Target {
  mode: Mode;
  layer: number;
  head: number;
  query: number;
  key: number;
  /** Whose next token is looked at. */
  at: number;
  /** What is blocked together, where several things are. */
  cuts: readonly Cut[];
  /** What heads give that are blocked. */
  instead: Instead;
}

export interface Try {
  rec: string;
  target: Target;
  /** The weight that was removed; a head as a whole has none. */
  weight: number | null;
  result: Knockout;
}

/** Kept while the page is open, across views. */
export const tries = signal<readonly Try[]>([]);

/** What is blocked, as a list, however it was pointed at. */
export function cutsOf({ mode, layer, head, query, key, cuts }: Target): readonly Cut[] {
  if (mode === "several") return cuts;
  if (mode === "edge") return [{ kind: "edge", layer, head, query: [query, query], key: [key, key] }];
  return mode === "token" ? [{ kind: "token", key: [key, key] }] : [{ kind: "head", layer, head }];
}

export function request(target: Target): KnockoutRequest {
  const { mode, layer, head, query, key, at, instead } = target;
  if (mode === "edge") return { edges: [{ layer, head, query, key }], at };
  if (mode === "token") return { keys: [key], at };
  const given = instead !== "zero" && takesHeads(cutsOf(target)) ? { instead } : {};
  return mode === "head" ? { heads: [[layer, head]], at, ...given } : { ...cutsRequest(target.cuts), at, ...given };
}

/** What was blocked, as the object of a sentence. */
export function named(target: Target): string {
  const { mode, layer, head, query, key, cuts } = target;
  if (mode === "edge") return `the edge ${query} → ${key} in layer ${layer}, head ${head}`;
  if (mode === "token") return `token ${key} in every head`;
  const what = mode === "head" ? `layer ${layer}, head ${head}` : listed(cuts.map((cut) => cutName(cut)));
  return takesHeads(cutsOf(target)) ? `${what}${INSTEAD_WORDS[target.instead]}` : what;
}

const INSTEAD_WORDS: Record<Instead, string> = {
  zero: "",
  mean: " (replaced by its mean so far)",
  resample: " (replaced by an earlier output)",
};
const MOST = 6;

function listed(names: readonly string[]): string {
  if (names.length === 1) return names[0]!;
  if (names.length > MOST) return `${names.length} things together`;
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

/** The same in the fewest letters, for tables. */
export function short(target: Target, query?: Label, key?: Label): string {
  const names = cutsOf(target).map((cut) => cutName(cut, query, key));
  const few = names.length > 3 ? `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : names.join(", ");
  return takesHeads(cutsOf(target)) && target.instead !== "zero" ? `${few} (${target.instead})` : few;
}
