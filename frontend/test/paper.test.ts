import { expect, test } from "vitest";

import { isUnder } from "../src/views/map/paper";

test("marks that the chosen token's label would cover are left out", () => {
  const at = (px: number) => ({ px, kind: "position" as const });
  expect([80, 99, 120].map((px) => isUnder("left", at(px), 100))).toEqual([false, true, false]);
  expect([20, 50, 150, 170].map((px) => isUnder("top", at(px), 100))).toEqual([false, true, true, false]);
  const section = (px: number) => ({ px, kind: "section" as const });
  expect([-50, 0, 140, 150].map((px) => isUnder("top", section(px), 100))).toEqual([false, true, true, false]);
});
