import { describe, expect, it } from "vitest";

import { layOut, printed } from "../src/views/text/layout";
import { brightness, combine, entropy, heaviest } from "../src/views/text/light";

const words = (list: string[]) => ({ count: list.length, raw: (i: number) => list[i]! });
const byLength = (text: string): number => text.length;

describe("layout", () => {
  it("puts every token on exactly one line, in order", () => {
    const list = Array.from({ length: 65 }, (_, i) => (i % 13 === 12 ? "\n" : ` w${i}`));
    const { lines, lineOf, lefts, widths } = layOut(words(list), 20, byLength);
    const order = lines.flatMap(({ start, stop }) => Array.from({ length: stop - start }, (_, i) => start + i));
    expect(order).toEqual(list.map((_, i) => i));
    list.forEach((_, i) => {
      const line = lines[lineOf[i]!]!;
      expect(i >= line.start && i < line.stop).toBe(true);
      expect(lefts[i]! + widths[i]!).toBeLessThanOrEqual(20);
    });
  });
  it("does not tear a word of several tokens", () => {
    const { lines } = layOut(words(["aaaa", " bb", "cc", " d"]), 7, byLength);
    expect(lines).toEqual([
      { start: 0, stop: 1 },
      { start: 1, stop: 4 },
    ]);
  });
  it("cuts a word that is longer than a line", () => {
    expect(layOut(words(["aaaa", "bbbb"]), 6, byLength).lines).toHaveLength(2);
  });
  it("leaves an empty line after a blank one", () => {
    const { lines } = layOut(words(["a", "\n\n", "b"]), 9, byLength);
    expect(lines).toEqual([
      { start: 0, stop: 2 },
      { start: 2, stop: 2 },
      { start: 2, stop: 3 },
    ]);
  });
  it("turns a stretch round that is read from right to left, and nothing beside it", () => {
    const { lefts } = layOut(words(["ab", " ", "שלו", "ם", ", ", "עול", "ם", " end", "."]), 99, byLength);
    // ab␣ stays; שלו ם , עול ם from position 3 to 13 are mirrored: the first is rightmost.
    expect(Array.from(lefts)).toEqual([0, 2, 10, 9, 7, 4, 3, 13, 17]);
  });
  it("keeps the rest of a letter's bytes with it", () => {
    expect(Array.from(layOut(words(["ש", "⋯", "ל", "⋯", " a"]), 99, byLength).lefts)).toEqual([3, 2, 1, 0, 4]);
  });
  it("turns stretches round line by line", () => {
    const { lines, lefts } = layOut(words(["שלום", " עולם", " טוב"]), 9, byLength);
    expect(lines.map(({ start }) => start)).toEqual([0, 2]);
    expect(Array.from(lefts)).toEqual([5, 0, -1]);
  });
  it("shows a line end as a sign and an empty token too", () => {
    expect(printed(".\n")).toBe(".↵");
    expect(printed("")).toBe("∅");
  });
  it("lays out a hundred thousand tokens at once", () => {
    const list = Array.from({ length: 100_000 }, (_, i) => ` w${i % 4096}`);
    const before = performance.now();
    layOut(words(list), 800, byLength);
    expect(performance.now() - before).toBeLessThan(1000);
  });
});

describe("light", () => {
  it("combines heads by mean and by max", () => {
    const grid = { rows: 2, cols: 3, values: Float32Array.of(1, 0, 0.5, 0, 0.5, 0.5) };
    expect([...combine(grid, "mean")]).toEqual([0.5, 0.25, 0.5]);
    expect([...combine(grid, "max")]).toEqual([1, 0.5, 0.5]);
  });
  it("finds the heaviest in order and leaves out zeros", () => {
    const top = heaviest(Float32Array.of(0, 0.25, 0.5, 0, 0.125, 0.0625), 3);
    expect(top.map(({ index }) => index)).toEqual([2, 1, 4]);
    expect(heaviest(Float32Array.of(0, 0), 3)).toEqual([]);
  });
  it("is brightest at the heaviest and dark at a thousandth of it", () => {
    expect(brightness(0.4, 0.4, "log")).toBe(1);
    expect(brightness(0.0004, 0.4, "log")).toBeCloseTo(0);
    expect(brightness(0.1, 0.4, "linear")).toBeCloseTo(0.25);
  });
  it("gives an even row the entropy log n", () => {
    expect(entropy(new Float32Array(8).fill(1 / 8))).toBeCloseTo(Math.log(8));
  });
});
