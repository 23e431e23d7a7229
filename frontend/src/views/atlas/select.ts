/** Which heads the atlas shows, and in what order. */

import type { Card } from "./cards";

/** Sort keys: "layer", "kind:NAME" or "stat:NAME". */
export interface Choice {
  kind: string | null;
  /** The least score at which a head counts as being of a kind; null for each kind's own bar. */
  least: number | null;
  stat: string | null;
  /** The least value of `stat`, null for any. */
  above: number | null;
  sort: string;
}

/** The score a head has for a kind, 0 where it has none. */
export function score(card: Card, kind: string): number {
  return card.kinds[kind]?.score ?? 0;
}

/** Which of its kinds a head is, strongest first. */
export function kindsOf(card: Card, least: number | null): string[] {
  return Object.keys(card.kinds)
    .filter((kind) => score(card, kind) > 0 && score(card, kind) >= (least ?? card.kinds[kind]!.bar))
    .sort((a, b) => score(card, b) - score(card, a) || a.localeCompare(b));
}

/** How many heads are of each kind. */
export function counts(cards: readonly Card[], kinds: readonly string[], least: number | null): Map<string, number> {
  return new Map(kinds.map((kind) => [kind, cards.filter((card) => kindsOf(card, least).includes(kind)).length]));
}

/** The heads that pass, in the order asked for; ties stay in reading order. */
export function select(cards: readonly Card[], choice: Choice): Card[] {
  const kept = cards.filter((card) => passes(card, choice));
  return kept.sort((a, b) => value(b, choice.sort) - value(a, choice.sort) || reading(a, b));
}

export function passes(card: Card, { kind, least, stat, above }: Choice): boolean {
  if (kind !== null && !kindsOf(card, least).includes(kind)) return false;
  if (stat === null || above === null) return true;
  const held = card.statistics[stat];
  return held !== undefined && held >= above;
}

/** The smallest and largest value of a statistic over all heads, null where no head has it. */
export function extent(cards: readonly Card[], stat: string): [number, number] | null {
  const values = cards.map((card) => card.statistics[stat]).filter((v) => v !== undefined);
  return values.length ? [Math.min(...values), Math.max(...values)] : null;
}

/** Layer by layer, head by head. */
export function reading(a: Card, b: Card): number {
  return a.role.localeCompare(b.role) || a.layer - b.layer || a.head - b.head;
}

function value(card: Card, sort: string): number {
  if (sort.startsWith("kind:")) return score(card, sort.slice(5));
  if (sort.startsWith("stat:")) return card.statistics[sort.slice(5)] ?? -Number.MAX_VALUE;
  return 0;
}
