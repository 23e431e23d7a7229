/** Where each token of a long text stands: lines of one height, broken at words, found again without searching. */

export interface Line {
  /** Tokens from, up to and without. */
  start: number;
  stop: number;
}

export interface TextLayout {
  lines: Line[];
  /** Left edge of each token, in pixels. */
  lefts: Float32Array;
  widths: Float32Array;
  /** Line of each token. */
  lineOf: Uint32Array;
}

export interface Words {
  count: number;
  raw(i: number): string;
}

/** What of a token is printed; line ends become a sign, so that they can be pointed at like any other token. */
export function printed(raw: string): string {
  const bare = raw.replaceAll("\r", "");
  if (!bare.includes("\n")) return bare === "" ? "∅" : bare.replaceAll("\t", "  ");
  const shown = bare.replaceAll("\n", "");
  return `${shown}↵`;
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const LEFT_TO_RIGHT = /[\p{L}\p{N}]/u;

/** Whether a token is of a script that is read from right to left. */
export function isRightToLeft(raw: string): boolean {
  return RIGHT_TO_LEFT.test(raw);
}

/** Turn round the tokens of each stretch that is read from right to left, the signs and blanks between them too. */
function turnRound(tokens: Words, { start, stop }: Line, lefts: Float32Array, widths: Float32Array): void {
  for (let i = start; i < stop; i++) {
    if (!isRightToLeft(tokens.raw(i))) continue;
    let last = i;
    for (let j = i + 1; j < stop; j++) {
      if (isRightToLeft(tokens.raw(j))) last = j;
      else if (LEFT_TO_RIGHT.test(tokens.raw(j))) break;
    }
    // What is left of a last letter's bytes belongs to it.
    while (last + 1 < stop && tokens.raw(last + 1) === "⋯") last++;
    const ends = lefts[i]! + lefts[last]! + widths[last]!;
    for (let j = i; j <= last; j++) lefts[j] = ends - lefts[j]! - widths[j]!;
    i = last;
  }
}

/** Break a text into lines; `measure` gives the width of a printed token and is asked once per distinct one. */
export function layOut(tokens: Words, width: number, measure: (text: string) => number): TextLayout {
  const known = new Map<string, number>();
  const lefts = new Float32Array(tokens.count);
  const widths = new Float32Array(tokens.count);
  const lineOf = new Uint32Array(tokens.count);
  const lines: Line[] = [];
  const indent = measure(" ");
  let start = 0;
  let x = 0;
  const close = (stop: number): void => {
    lines.push({ start, stop });
    start = stop;
    x = 0;
  };
  for (let i = 0; i < tokens.count; i++) {
    const raw = tokens.raw(i);
    const text = printed(raw);
    let wide = known.get(text);
    if (wide === undefined) {
      wide = measure(text);
      known.set(text, wide);
    }
    if (i > start && x + wide > width) {
      const cut = wordStart(tokens, i, start);
      close(cut);
      if (cut < i && /^ \S/.test(printed(tokens.raw(cut)))) x = -indent;
      for (let j = cut; j < i; j++) {
        lefts[j] = x;
        x += widths[j]!;
      }
    }
    // A blank before the first word of a line hangs out into the margin.
    if (i === start && /^ \S/.test(text)) x = -indent;
    lefts[i] = x;
    widths[i] = wide;
    x += wide;
    const breaks = raw.match(/\n/g)?.length ?? 0;
    if (breaks > 0) {
      close(i + 1);
      if (breaks > 1) lines.push({ start: i + 1, stop: i + 1 });
    }
  }
  if (start < tokens.count) close(tokens.count);
  lines.forEach((line, at) => {
    turnRound(tokens, line, lefts, widths);
    lineOf.fill(at, line.start, line.stop);
  });
  return { lines, lefts, widths, lineOf };
}

/** The first token of the word that token i continues, its comma or quote included, so that no word is torn. */
function wordStart(tokens: Words, i: number, start: number): number {
  let at = i;
  while (at > start && i - at < 8 && /^\S/.test(tokens.raw(at)) && !/\s$/.test(tokens.raw(at - 1))) at--;
  return at > start ? at : i;
}
