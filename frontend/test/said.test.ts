import { expect, test } from "vitest";

import { listensAt, wordsOf } from "../src/views/picture/said";

const tokens = (...pieces: string[]) => ({ count: pieces.length, raw: (i: number) => pieces[i]! });

test("pieces of a word are one word, with the time of the first; instructions and marks are none", () => {
  const read = tokens("<|start|>", "<|en|>", " un", "der", " the", " mat", ".");
  expect(wordsOf(read, [0, 0, 0.1, 0.3, 0.5, 0.7, 0.9])).toEqual([
    { first: 2, text: "under", seconds: 0.1 },
    { first: 4, text: "the", seconds: 0.5 },
    { first: 5, text: "mat", seconds: 0.7 },
  ]);
});

test("a word is listened for by the token before it", () => {
  expect(listensAt({ first: 4, text: "the", seconds: 0 })).toBe(3);
  expect(listensAt({ first: 0, text: "the", seconds: 0 })).toBe(0);
});
