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
