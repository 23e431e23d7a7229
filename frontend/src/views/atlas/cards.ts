/** What the page keeps of each head, read from what a source answers. */

import type { Atlas, AtlasHead } from "../../source/source";

/** How well one kind describes one head; no score where the kind makes no sense there. */
export interface Fit {
  score: number | null;
  /** The score from which the atlas itself calls the head one of this kind. */
  bar: number;
  /** In words what was seen. */
  evidence: string | null;
}

export interface Card {
  role: string;
  layer: number;
  head: number;
  kinds: Record<string, Fit>;
  statistics: Record<string, number>;
  /** What the atlas says in words, such as which curve fits better. */
  notes: Record<string, string>;
}

export interface Cards {
  cards: Card[];
  kinds: string[];
  statistics: string[];
}

export function readCards(atlas: Atlas): Cards {
  const cards = atlas.heads.map(readCard);
  return { cards, kinds: named(cards, (card) => card.kinds), statistics: named(cards, (card) => card.statistics) };
}

function readCard(head: AtlasHead): Card {
  const values = Object.entries(head.statistics) as [string, unknown][];
  return {
    role: head.role,
    layer: head.layer,
    head: head.head,
    kinds: Object.fromEntries(fits(head)),
    statistics: Object.fromEntries(values.filter((one): one is [string, number] => Number.isFinite(one[1]))),
    notes: Object.fromEntries(values.filter((one): one is [string, string] => typeof one[1] === "string")),
  };
}

function fits(head: AtlasHead): [string, Fit][] {
  return Object.entries(head.findings).map(([kind, { score, bar, evidence }]) => [kind, { score, bar, evidence }]);
}

function named(cards: readonly Card[], of: (card: Card) => object): string[] {
  return [...new Set(cards.flatMap((card) => Object.keys(of(card))))];
}
