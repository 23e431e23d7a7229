/** From what a source answers to a `Walk`. */

import type { Steps } from "../../source/source";
import type { Matrix, Walk } from "./walk";

/** A small table of numbers, as sources send it. */
interface Part {
  name: string;
  shape: number[];
  rows: string[];
  columns: string[];
  data: (number | null)[][];
  worked: string[][];
}

/** `row` follows another query where the source sent several, as worked examples do. */
export function readWalk(steps: Steps, row: number | null = null): Walk {
  const find = (step: string, part = step): Part | undefined => partsOf(steps, step).find((one) => one.name === part);
  const vectors = (name: string) => find("projections", name) ?? find(name);
  const line = (name: string): number[] => pickRow(find(name), at);
  const worked = (name: string): string[] => pick(find(name)?.worked ?? [], at);
  const weights = find("weights");
  const queries = weights && weights.rows.length > 1 ? weights.rows : [];
  const at = Math.min(row ?? queries.length - 1, queries.length - 1);
  const places = numbersOf(steps.keys);
  const masked = find("masked") ? line("masked") : line("scaled");
  const q = vectors("q");
  const dim = Number(steps.dim) || (q?.shape[1] ?? 1);
  const query = queries[at] ?? String(steps.token ?? "");
  const self = queries.length > 0 ? at : places.indexOf(Number(steps.query));
  return {
    query,
    queries,
    self: steps.tokens[self] === query ? self : -1,
    keys: steps.tokens.map((token, i) => ({
      token: String(token),
      position: places[i] ?? i,
      allowed: masked[i] !== -Infinity,
    })),
    visible: queries.length > 0 ? masked.filter((s) => s > -Infinity).length : Number(steps.visible ?? places.length),
    dim,
    valueDim: vectors("v")?.shape[1] ?? dim,
    group: Number(steps.group) || 1,
    scale: Number(steps.scale) || 1 / Math.sqrt(dim),
    q: pickRow(q, at),
    k: table(vectors("k")),
    v: table(vectors("v")),
    scores: line("scores"),
    scaled: line("scaled"),
    masked,
    weights: line("weights"),
    worked: {
      scores: worked("scores"),
      scaled: worked("scaled"),
      masked: worked("masked"),
      weights: worked("weights"),
    },
    output: pickRow(find("mix", "output") ?? find("output"), at),
    hasMask: find("masked") !== undefined,
    ...(queries.length > 1
      ? together(weights, at, 0, places)
      : together(find("parallel", "weights"), null, Number(steps.query), places)),
    heads: find("heads") ? table(find("heads")).map((head) => head[0] ?? 0) : null,
    next: steps.next && steps.next.length > 0 ? steps.next : null,
  };
}

/** Weights of several queries; `last` is where the last of them stands where only the last few were sent. */
function together(
  part: Part | undefined,
  row: number | null,
  last: number,
  places: number[],
): Pick<Walk, "parallel" | "parallelRow"> {
  if (!part) return { parallel: null, parallelRow: -1 };
  const first = row === null ? last - part.rows.length + 1 : 0;
  const later = (r: number, c: number): boolean => (places[c] ?? c) > first + r;
  // A weight of exactly 0 on a later token is the mask's doing; elsewhere it is only small.
  const values = table(part).map((line, r) => line.map((x, c) => (x === 0 && later(r, c) ? null : x)));
  const parallel: Matrix = { values, rows: part.rows, columns: part.columns };
  return { parallel, parallelRow: row ?? part.rows.length - 1 };
}

function partsOf(steps: Steps, name: string): Part[] {
  const parts = steps.steps.find((step) => step.name === name)?.parts;
  return Array.isArray(parts) ? (parts as Part[]) : [];
}

/** JSON has no word for −∞: it comes as null. */
function table(part: Part | undefined): number[][] {
  return (part?.data ?? []).map((line) => line.map((x) => x ?? -Infinity));
}

function pickRow(part: Part | undefined, at: number): number[] {
  return pick(table(part), at);
}

function pick<T>(rows: readonly T[][], at: number): T[] {
  return rows[Math.max(0, Math.min(at, rows.length - 1))] ?? [];
}

function numbersOf(value: unknown): number[] {
  return Array.isArray(value) ? value.map(Number) : [];
}
