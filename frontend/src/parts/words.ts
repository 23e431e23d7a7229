/** Tokens are pieces of words: which belong together, and what stands around one. */

export interface Pieces {
  count: number;
  raw(i: number): string;
}

const LETTER = /[\p{L}\p{N}\p{M}'’]/u;

/** For every token, the first token of its word; blanks and punctuation end a word. */
export function wordStarts(tokens: Pieces): Uint32Array {
  const starts = new Uint32Array(tokens.count);
  let start = 0;
  let before = "";
  for (let i = 0; i < tokens.count; i++) {
    const raw = tokens.raw(i);
    // Pieces of one character, such as the bytes of an emoji, have no text of their own.
    const goes = raw === "⋯" || (LETTER.test(raw.charAt(0)) && LETTER.test(before));
    if (i === 0 || !goes) start = i;
    starts[i] = start;
    if (raw !== "⋯") before = [...raw].at(-1) ?? "";
  }
  return starts;
}

/** Weights of tokens as weights of words: each token has its whole word's. */
export function byWord(weights: Float32Array, starts: Uint32Array): Float32Array {
  const sums = new Float32Array(weights.length);
  for (let i = 0; i < weights.length; i++) sums[starts[i] ?? i]! += weights[i]!;
  return sums.map((_, i) => sums[starts[i] ?? i]!);
}

/** The whole word that starts at a token. */
export function wordAt(tokens: Pieces, starts: Uint32Array, start: number): string {
  let text = tokens.raw(start);
  for (let i = start + 1; i < tokens.count && starts[i] === start; i++)
    if (tokens.raw(i) !== "⋯") text += tokens.raw(i);
  return text;
}

/** What stands before and after a token, cut at `most` characters on either side, on one line. */
export function around(tokens: Pieces, i: number, most = 18): [before: string, after: string] {
  let [before, after] = ["", ""];
  for (let j = i - 1; j >= 0 && before.length <= most; j--) before = tokens.raw(j) + before;
  for (let j = i + 1; j < tokens.count && after.length <= most; j++) after += tokens.raw(j);
  // A sign that turns the rest of a line round would do so to the tokens of others too.
  const line = (text: string): string =>
    text.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "").replace(/\s+/g, " ");
  const [left, right] = [line(before), line(after)];
  return [
    left.length > most ? `…${[...left].slice(-most).join("")}` : left,
    right.length > most ? `${[...right].slice(0, most).join("")}…` : right,
  ];
}
