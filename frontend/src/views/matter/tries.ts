/** What a reader can block, and what came of what they blocked in this visit. */

import { signal } from "@preact/signals";
import type { Knockout, KnockoutRequest } from "../../source/source";

export type Mode = "edge" | "token" | "head";
export const MODES: readonly Mode[] = ["edge", "token", "head"];

export interface Target {
  mode: Mode;
  layer: number;
  head: number;
  query: number;
  key: number;
  /** Whose next token is looked at. */
  at: number;
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

export function request({ mode, layer, head, query, key, at }: Target): KnockoutRequest {
  if (mode === "edge") return { edges: [{ layer, head, query, key }], at };
  return mode === "token" ? { keys: [key], at } : { heads: [[layer, head]], at };
}

/** What was blocked, as the object of a sentence. */
export function named({ mode, layer, head, query, key }: Target): string {
  if (mode === "edge") return `the edge ${query} → ${key} in layer ${layer}, head ${head}`;
  return mode === "token" ? `token ${key} in every head` : `layer ${layer}, head ${head}`;
}

/** The same in the fewest letters, for tables. */
export function short({ mode, layer, head, query, key }: Target): string {
  if (mode === "edge") return `L${layer} H${head}: ${query} → ${key}`;
  return mode === "token" ? `token ${key}` : `L${layer} H${head}`;
}
