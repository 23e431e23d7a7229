/** A colour for every kind of head, and how a kind's name is written. */

/** Told apart by eye in light and dark, the first eight also by colour-blind eyes. */
const COLOURS = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#b8a900",
  "#7a5cc4",
  "#8c564b",
  "#7f7f7f",
  "#17a398",
];

export function kindColour(kinds: readonly string[], kind: string): string {
  const i = kinds.indexOf(kind);
  return i < 0 ? "var(--line-strong)" : COLOURS[i % COLOURS.length]!;
}

export function spoken(name: string): string {
  return name.replaceAll("_", " ");
}

/** Every kind for which there is evidence to look at, in the atlas's order. */
export const KINDS = [
  "previous token",
  "self",
  "first-token sink",
  "duplicate token",
  "induction",
  "local",
  "strided",
  "uniform",
  "delimiter",
  "retrieval",
  "alignment",
] as const;
