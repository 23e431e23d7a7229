import { expect, test } from "vitest";

import { marks } from "../src/views/compare/Axes";
import { roundTop } from "../src/views/compare/CompareView";

test("few tokens are all named, at the middle of their cells", () => {
  expect(marks(5, 7)).toEqual([
    { at: 5, share: 0.25 },
    { at: 6, share: 0.75 },
  ]);
});

test("of many the first, the last and some between are named", () => {
  expect(marks(100, 301).map(({ at }) => at)).toEqual([100, 150, 200, 250, 300]);
});

test("colours end at the next round number above the largest distance", () => {
  expect([[], [0.04], [0.12, 0.03], [0.2], [0.7]].map(roundTop)).toEqual([0.05, 0.05, 0.2, 0.2, 1]);
});
