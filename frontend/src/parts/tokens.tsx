import type { Tokens } from "../source/source";

/** The tokens of a recording as a reader sees them; every string here goes to the page as text, never as HTML. */
export class TokenTable {
  readonly count: number;
  private readonly text: string[] | string;

  constructor(private readonly tokens: Tokens) {
    this.count = Math.max(tokens.ids.length, tokens.pieces.length, tokens.starts.length);
    // Offsets count code points; only a text with characters beyond 16 bits needs to be taken apart.
    this.text = /[\ud800-\udfff]/.test(tokens.text) ? Array.from(tokens.text) : tokens.text;
  }

  /** The tokens from a position on: those of the queries, where a cache holds earlier keys. */
  from(offset: number): TokenTable {
    if (offset <= 0) return this;
    const { text, ids, starts, stops, pieces } = this.tokens;
    const rest = <T,>(list: T[]): T[] => list.slice(offset);
    return new TokenTable({ text, ids: rest(ids), starts: rest(starts), stops: rest(stops), pieces: rest(pieces) });
  }

  /** Whether tokens have a text, and not only numbers. */
  get named(): boolean {
    return this.tokens.text !== "" || this.tokens.pieces.some((piece) => !/^\d*$/.test(piece));
  }

  id(i: number): number | undefined {
    return this.tokens.ids[i];
  }

  /** The characters a token stands for, as in the document. */
  raw(i: number): string {
    const start = this.tokens.starts[i];
    const stop = this.tokens.stops[i];
    if (start !== undefined && stop !== undefined && stop > start) {
      const part = this.text.slice(start, stop);
      return typeof part === "string" ? part : part.join("");
    }
    return this.tokens.pieces[i] ?? `#${i}`;
  }

  /** Short and on one line, with blanks that can be seen. */
  label(i: number): string {
    return visible(this.raw(i));
  }

  /** Positions whose token contains a text, from `from` on and round the end; at most `limit`. */
  find(wanted: string, from = 0, limit = 200): number[] {
    if (wanted === "") return [];
    const number = /^#?(\d+)$/.exec(wanted.trim());
    if (number && Number(number[1]) < this.count) return [Number(number[1])];
    const found: number[] = [];
    const needle = wanted.toLowerCase();
    for (let step = 0; step < this.count && found.length < limit; step++) {
      const i = (from + step) % this.count;
      if (this.startsHere(i, needle)) found.push(i);
    }
    return found;
  }

  /** Whether a text begins in token i, so that words of several tokens are found as well. */
  private startsHere(i: number, needle: string): boolean {
    const own = this.raw(i).toLowerCase();
    if (own.includes(needle)) return true;
    const head = own.trimStart();
    if (head === "" || !needle.startsWith(head)) return false;
    let text = head;
    for (let j = i + 1; j < this.count && text.length < needle.length; j++) text += this.raw(j).toLowerCase();
    return text.startsWith(needle);
  }
}

/** Characters that turn others round, or that nobody sees: byte order marks and blanks without a width. */
const UNSEEN = /[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g;
/** Those that join letters and emojis, which is seen; alone they are not. */
const JOINERS = /^(?:\u200c|\u200d|[\ufe00-\ufe0f])+$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROL = /[\u0000-\u001f]/g;
/** More of a token is not read on a label; an emoji with its joiners is not cut in two. */
const LONGEST = 48;

/** A label of one line: a space before a word is dropped, a lone one shown; signs stand for what cannot be seen. */
export function visible(raw: string): string {
  if (raw === "") return "∅";
  const named = (text: string): string =>
    [...text].map((one) => `⟨${one.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`).join("");
  const marked = raw
    .replaceAll("\r", "")
    .replaceAll("\n", "⏎")
    .replaceAll("\t", "⇥")
    .replace(CONTROL, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)))
    .replace(UNSEEN, named);
  const trimmed = marked.trim();
  if (trimmed === "") return "␣".repeat(Math.min(3, Math.max(1, marked.length)));
  if (JOINERS.test(trimmed)) return named(trimmed);
  return trimmed.length > LONGEST ? shortened(trimmed) : trimmed;
}

function shortened(text: string): string {
  let short = "";
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    if (short.length + segment.length > LONGEST) return `${short || segment.slice(0, LONGEST)}…`;
    short += segment;
  }
  return short;
}

/** One token as a small chip with its position. */
export function TokenLabel({ tokens, i, role }: { tokens: TokenTable; i: number; role?: "query" | "key" }) {
  return (
    <span class={`token ${role ?? ""}`} title={`token ${i}`}>
      <span class="token-text">{tokens.label(i)}</span>
      <span class="token-index">{i}</span>
    </span>
  );
}
