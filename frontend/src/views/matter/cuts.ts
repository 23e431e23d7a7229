/** What can be blocked together with other things: as a value, in an address, in words, and as a request. */

import type { KnockoutRequest } from "../../source/source";

/** From the first to the last position, both included. */
export type Span = readonly [first: number, last: number];

/** `layer` or `head` null: all of them. */
export type Cut =
  | { kind: "head"; layer: number; head: number | null }
  | { kind: "token"; key: Span }
  | { kind: "edge"; layer: number | null; head: number | null; query: Span; key: Span };

const NUMBER = String.raw`(\d{1,9})`;
const RANGE = String.raw`(\d{1,9})(?:\s*[-–]\s*(\d{1,9}))?`;
const WHERE = String.raw`(\d{1,4}|\*)\s*[.]\s*(\d{1,4}|\*)`;
const FORMS: readonly [RegExp, (...parts: (string | undefined)[]) => Cut | null][] = [
  [new RegExp(`^${NUMBER}\\.${NUMBER}$`), (layer, head) => ({ kind: "head", layer: +layer!, head: +head! })],
  [
    new RegExp(`^l(?:ayer)?\\s*${NUMBER}[,\\s]*h(?:ead)?\\s*${NUMBER}$`),
    (l, h) => ({ kind: "head", layer: +l!, head: +h! }),
  ],
  [
    new RegExp(`^(?:${NUMBER}\\.\\*|l(?:ayer)?\\s*${NUMBER})$`),
    (a, b) => ({ kind: "head", layer: +(a ?? b)!, head: null }),
  ],
  [new RegExp(`^t(?:okens?)?\\s*${RANGE}$`), (a, b) => withSpans({ kind: "token", key: span(a, b) })],
  [
    new RegExp(`^(?:${WHERE}\\s*[q:]?\\s*|q\\s*)?${RANGE}\\s*(?:k|>|→|->)\\s*${RANGE}$`),
    (layer, head, qa, qb, ka, kb) =>
      withSpans({ kind: "edge", layer: one(layer), head: one(head), query: span(qa, qb), key: span(ka, kb) }),
  ],
];

function one(text: string | undefined): number | null {
  return text === undefined || text === "*" ? null : +text;
}

function span(first: string | undefined, last: string | undefined): Span {
  return [+first!, +(last ?? first)!];
}

function withSpans(cut: Cut): Cut | null {
  const spans = cut.kind === "head" ? [] : cut.kind === "token" ? [cut.key] : [cut.query, cut.key];
  return spans.every(([first, last]) => first <= last) ? cut : null;
}

/** Reads `5.2`, `layer 5`, `token 120`, `tokens 120-140`, `5.2: 600 → 539`; null where it is none of these. */
export function parseCut(text: string): Cut | null {
  const plain = text.trim().toLowerCase();
  for (const [form, made] of FORMS) {
    const match = form.exec(plain);
    if (match) return made(...match.slice(1));
  }
  return null;
}

/** As an address holds it: letters that need no escape. */
export function printCut(cut: Cut): string {
  if (cut.kind === "head") return `${cut.layer}.${cut.head ?? "*"}`;
  if (cut.kind === "token") return `t${range(cut.key, "-")}`;
  const where = cut.layer === null && cut.head === null ? "" : `${cut.layer ?? "*"}.${cut.head ?? "*"}`;
  return `${where}q${range(cut.query, "-")}k${range(cut.key, "-")}`;
}

export function parseCuts(text: string): Cut[] {
  return text
    .split(" ")
    .map(parseCut)
    .filter((cut) => cut !== null);
}

export function printCuts(cuts: readonly Cut[]): string {
  return [...new Set(cuts.map(printCut))].join(" ");
}

function range([first, last]: Span, dash: string): string {
  return first === last ? String(first) : `${first}${dash}${last}`;
}

export type Label = (position: number) => string;

/** In words; `label` gives the token at a position, where there is room for it. */
export function cutName(cut: Cut, query?: Label, key?: Label): string {
  const quoted = ([first, last]: Span, label: Label | undefined): string =>
    label && first === last ? `“${label(first)}” ${first}` : range([first, last], "–");
  if (cut.kind === "head") return cut.head === null ? `all of layer ${cut.layer}` : `L${cut.layer} H${cut.head}`;
  if (cut.kind === "token") return `${cut.key[0] === cut.key[1] ? "token" : "tokens"} ${quoted(cut.key, key)}`;
  const layer = cut.layer === null ? "all layers" : `L${cut.layer}`;
  const head = cut.head === null ? (cut.layer === null ? "" : ", all heads") : ` H${cut.head}`;
  return `${layer}${head}: ${quoted(cut.query, query)} → ${quoted(cut.key, key)}`;
}

function numbers([first, last]: Span): number[] {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

/** All of them in one run of the model. */
export function cutsRequest(cuts: readonly Cut[]): Pick<KnockoutRequest, "heads" | "edges" | "keys"> {
  const heads: [number, number][] = [];
  const edges: NonNullable<KnockoutRequest["edges"]> = [];
  const keys: number[] = [];
  for (const cut of cuts) {
    if (cut.kind === "token") keys.push(...numbers(cut.key));
    else if (cut.kind === "edge")
      edges.push({ layer: cut.layer, head: cut.head, query: numbers(cut.query), key: numbers(cut.key) });
    else if (cut.head === null) edges.push({ layer: cut.layer, head: null, query: null, key: null });
    else heads.push([cut.layer, cut.head]);
  }
  return { heads, edges, keys };
}

/** Whether a cut takes whole heads, so that there is a choice of what they give instead. */
export function takesHeads(cuts: readonly Cut[]): boolean {
  return cuts.some((cut) => cut.kind === "head");
}

/** Why a cut cannot be made in this stack; null where it can. */
export function outside(
  cut: Cut,
  stack: { layers: readonly number[]; heads: number; queries: number; keys: number },
): string | null {
  const wrong = (what: string, number: number, known: string): string => `There is no ${what} ${number}: ${known}.`;
  const { layer, head } = cut.kind === "token" ? { layer: null, head: null } : cut;
  if (layer !== null && !stack.layers.includes(layer))
    return wrong("layer", layer, `layers go from ${stack.layers[0]} to ${stack.layers.at(-1)}`);
  if (head !== null && head >= stack.heads) return wrong("head", head, `heads go from 0 to ${stack.heads - 1}`);
  const query = cut.kind === "edge" ? cut.query[1] : 0;
  const key = cut.kind === "head" ? 0 : cut.key[1];
  if (query >= stack.queries) return wrong("query", query, `queries go from 0 to ${stack.queries - 1}`);
  if (key >= stack.keys) return wrong("token", key, `tokens go from 0 to ${stack.keys - 1}`);
  return null;
}
