import { expect, test } from "vitest";

import type { Sight } from "../src/source/source";
import { isIn, nameOf, patchOf, secondsOf, stepFrom, tokenAt } from "../src/views/picture/places";

const image: Sight = { name: "image 1", kind: "image", png: "", start: 5, rows: 2, columns: 3 };
const sound: Sight = { name: "sound", kind: "sound", png: "", start: 0, rows: 1, columns: 100 };

test("a patch lies where its row and column are", () => {
  expect(patchOf(image, 9)).toEqual({ left: 1 / 3, top: 1 / 2, width: 1 / 3, height: 1 / 2 });
});

test("a point is in the patch under it, also at the very edges", () => {
  expect(tokenAt(image, 0.4, 0.6)).toBe(9);
  expect(tokenAt(image, 1, 1)).toBe(10);
  expect(tokenAt(image, -0.01, 0)).toBe(5);
});

test("only its own tokens are in a picture", () => {
  expect([4, 5, 10, 11].map((token) => isIn(image, token))).toEqual([false, true, true, false]);
});

test("arrow keys stop at the edges, and begin at the first patch", () => {
  expect(stepFrom(image, 7, 1, 0)).toBe(7);
  expect(stepFrom(image, 7, 0, 1)).toBe(10);
  expect(stepFrom(image, 99, 1, 0)).toBe(6);
});

test("patches are named by row and column, frames by their time where it is known", () => {
  expect(nameOf(image, 9, "<image>")).toBe("row 1, column 1");
  expect(nameOf(sound, 3, "0.06 s")).toBe("0.06 s");
  expect(nameOf(sound, 3, "<audio>")).toBe("frame 3");
});

test("a name is a time only if it is one", () => {
  expect(["0.06 s", "12 s", "6 s later", "patch 0,1"].map(secondsOf)).toEqual([0.06, 12, null, null]);
});
