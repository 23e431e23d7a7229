import { formatCount, formatShort } from "../../parts/format";
import type { TokenTable } from "../../parts/tokens";

/** What to write along an axis at the present zoom: single tokens where they fit, else sections and positions. */

export interface Section {
  /** First token. */
  at: number;
  title: string;
  /** Documents weigh more than paragraphs where room is short. */
  weight: number;
}

export interface Mark {
  /** Distance from the start of the axis, in pixels: the middle of a token, the start of a section. */
  px: number;
  text: string;
  kind: "token" | "position" | "section";
  index: number;
}

const LINE_BREAK = /\n/;

/** Documents and paragraphs of a text: where they start and their first words. */
export function findSections(tokens: TokenTable, documents: readonly number[]): Section[] {
  const sections: Section[] = [];
  if (!tokens.named) return sections;
  const starts = new Set(documents);
  let breaks = 2; // the beginning counts as after a blank line
  for (let i = 0; i < tokens.count; i++) {
    const raw = tokens.raw(i);
    const found = raw.match(/\n/g)?.length ?? 0;
    const blank = raw.trim() === "";
    if (!blank && (breaks >= 2 || starts.has(i))) {
      sections.push({ at: i, title: openingWords(tokens, i), weight: starts.has(i) ? 3 : breaks >= 3 ? 2 : 1 });
    }
    if (found > 0) breaks = blank ? breaks + found : found;
    else if (!blank) breaks = 0;
  }
  return sections;
}

function openingWords(tokens: TokenTable, from: number): string {
  let text = "";
  for (let i = from; i < Math.min(tokens.count, from + 16); i++) {
    const raw = tokens.raw(i);
    if (text !== "" && LINE_BREAK.test(raw)) break;
    text += raw;
    if (text.length > 28) break;
  }
  const words = text.replace(/\s+/g, " ").trim();
  return words.length > 26 ? `${words.slice(0, 25).trimEnd()}…` : words;
}

/** A round step between positions: 1, 2 or 5 times a power of ten, at least `least` cells. */
export function roundStep(least: number): number {
  const base = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((m) => m * base).find((step) => step >= least) ?? base * 10;
}

/** Index of the first section at or after a token; sections are in order, and there may be thousands. */
function firstFrom(sections: readonly Section[], token: number): number {
  let [low, high] = [0, sections.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sections[middle]!.at < token) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface AxisRange {
  /** Cells at the two ends of the axis, fractional, and the number of cells there are. */
  from: number;
  to: number;
  count: number;
  scale: number;
}

/** Marks for one axis; `room` is the pixels one section title or position needs along the axis. */
export function axisMarks(
  range: AxisRange,
  tokens: TokenTable,
  sections: readonly Section[],
  room: number,
  tokenRoom = 13,
): Mark[] {
  const { from, to, count, scale } = range;
  const first = Math.max(0, Math.floor(from));
  const last = Math.min(count - 1, Math.ceil(to));
  const px = (cell: number): number => (cell - from) * scale;
  if (scale >= tokenRoom) {
    const marks: Mark[] = [];
    for (let i = first; i <= last; i++) {
      marks.push({ px: px(i + 0.5), text: tokens.label(i), kind: "token", index: i });
    }
    return marks;
  }
  const marks: Mark[] = [];
  const taken: number[] = [];
  const free = (at: number): boolean => !taken.some((other) => Math.abs(other - at) < room);
  const inView = sections.slice(firstFrom(sections, first), firstFrom(sections, last + 1));
  for (const weight of [3, 2, 1]) {
    for (const section of inView) {
      const at = px(section.at);
      if (section.weight !== weight || !free(at)) continue;
      taken.push(at);
      marks.push({ px: at, text: section.title, kind: "section", index: section.at });
    }
  }
  const step = roundStep(Math.max(room, 48) / scale);
  for (let i = Math.ceil(first / step) * step; i <= last; i += step) {
    const at = px(i + 0.5);
    if (!free(at)) continue;
    marks.push({ px: at, text: positionLabel(i, step), kind: "position", index: i });
  }
  return marks;
}

/** Short where steps are wide; in full where short numbers would be the same. */
function positionLabel(position: number, step: number): string {
  const told = position < 1_000_000 ? 100 : 10_000;
  return step % told === 0 ? formatShort(position) : formatCount(position);
}
