import { expect, it } from "vitest";
import { around, byWord, wordAt, wordStarts } from "../src/parts/words";
import { layOut } from "../src/views/text/layout";
import { heat } from "../src/views/text/light";

const pieces = (...raw: string[]) => ({ count: raw.length, raw: (i: number) => raw[i]! });
const text = pieces("He", " did", "n", "'t", " sw", "im", ",", ' "', "ever", '"', "\n", "A", "gain");

it("joins the pieces of a word and keeps blanks and punctuation apart", () => {
  const starts = wordStarts(text);
  const words = [...new Set(starts)].map((start) => wordAt(text, starts, start));
  expect(words).toEqual(["He", " didn't", " swim", ",", ' "', "ever", '"', "\n", "Again"]);
  expect(wordStarts(pieces())).toHaveLength(0);
});

it("keeps the bytes of one character together", () => {
  const emoji = pieces(" 😀", "⋯", "⋯", " on");
  expect([...wordStarts(emoji)]).toEqual([0, 0, 0, 3]);
  expect(wordAt(emoji, wordStarts(emoji), 0)).toBe(" 😀");
});

it("gives every piece the weight of its word", () => {
  const light = byWord(new Float32Array([0.5, 0.25, 0.125, 0]), new Uint32Array([0, 1, 1, 3]));
  expect([...light]).toEqual([0.5, 0.375, 0.375, 0]);
});

it("shows what stands around a piece, on one line and cut", () => {
  expect(around(text, 5, 8)).toEqual(["…idn't sw", ', "ever"…']);
  expect(around(text, 0, 4)[0]).toBe("");
  expect(around(text, 12, 4)).toEqual(['…r" A', ""]);
});

it("keeps the brightest token of every row of the strip, however many lines fall on it", () => {
  const many = pieces(...Array.from({ length: 40 }, (_, i) => `w${i}\n`));
  const layout = layOut(many, 100, () => 50);
  const light = new Float32Array(40);
  light[39] = 1;
  light[21] = 0.5;
  const rows = heat(layout, light, 1, "linear", 10);
  expect(rows[9]).toBe(1);
  expect(rows[5]).toBe(0.5);
  expect(rows.filter((x) => x > 0)).toHaveLength(2);
  expect(heat(layout, light, 1, "linear", 400).filter((x) => x > 0)).toHaveLength(20);
});

it("does not let a sign in the text turn the words around a piece round", () => {
  expect(around(pieces("a", " \u202eb", " c", "\u202c d"), 2)).toEqual(["a b", " d"]);
});
