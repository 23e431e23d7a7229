import { expect, it } from "vitest";
import { common, gaps, placeOf, zoomed } from "../src/views/compare/align";

// a b c d e   and   a x c d f g
const runs = [
  { first: 0, second: 0, length: 1 },
  { first: 2, second: 2, length: 2 },
];

it("counts common tokens and finds where each stands in both texts", () => {
  expect(common(runs)).toBe(3);
  expect([0, 1, 2, 3].map((i) => placeOf(runs, i))).toEqual([
    [0, 0],
    [2, 2],
    [3, 3],
    [-1, -1],
  ]);
});

it("names what either text has alone, at the ends too", () => {
  expect(gaps(runs, 5, 6)).toEqual([
    { first: [1, 2], second: [1, 2] },
    { first: [4, 5], second: [4, 6] },
  ]);
  expect(gaps([{ first: 2, second: 0, length: 3 }], 5, 3)).toEqual([{ first: [0, 2], second: [0, 0] }]);
  expect(gaps([], 2, 0)).toEqual([{ first: [0, 2], second: [0, 0] }]);
});

it("zooms around a token and stays inside the map", () => {
  expect(zoomed([0, 100], 50, 1 / 4, 100)).toEqual([38, 63]);
  expect(zoomed([0, 100], 0, 1 / 4, 100)).toEqual([0, 25]);
  expect(zoomed([0, 100], 99, 1 / 4, 100)).toEqual([75, 100]);
  expect(zoomed([0, 8], 3, 1 / 4, 100)).toEqual([0, 8]);
  expect(zoomed([40, 60], 50, 40, 100)).toEqual([0, 100]);
  expect(zoomed([0, 5], 2, 1 / 4, 5)).toEqual([0, 5]);
});
