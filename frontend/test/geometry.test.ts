import { describe, expect, it } from "vitest";

import {
  allowedKeys,
  clearForbidden,
  fit,
  isAllowed,
  type MaskShape,
  middleCell,
  tileAllowed,
  tileShape,
  toCell,
  topLevel,
  toScreen,
} from "../src/views/map/geometry";

const causal: MaskShape = { queries: 65, keys: 65, causal: true, window: null };

describe("levels", () => {
  it.each([
    [1, 0],
    [256, 0],
    [257, 1],
    [512, 1],
    [513, 2],
    [100_000, 9],
  ])("%i tokens need level %i", (n, level) => {
    expect(topLevel(n, 1)).toBe(level);
    expect(topLevel(1, n)).toBe(level);
  });
  it("gives the last tile of a level what is left", () => {
    const mask = { ...causal, queries: 600, keys: 513 };
    expect(tileShape(mask, 0, 2, 2)).toEqual({ rows: 88, cols: 1 });
    expect(tileShape(mask, 1, 1, 1)).toEqual({ rows: 44, cols: 1 });
  });
});

describe("camera", () => {
  it("finds the cell it has drawn", () => {
    const camera = { x: 31.5, y: 90.25, scale: 3.5 };
    const size = { width: 301, height: 199 };
    const [px, py] = toScreen(camera, size, 88, 12);
    expect(toCell(camera, size, px, py)).toEqual([88, 12]);
  });
  it("fits the longer side", () => {
    expect(fit(100, 400, { width: 400, height: 400 }, 1)).toEqual({ x: 200, y: 50, scale: 1 });
  });
});

describe("mask", () => {
  it("lets a causal query see itself and what came before", () => {
    expect(isAllowed(causal, 3, 3)).toBe(true);
    expect(isAllowed(causal, 3, 4)).toBe(false);
  });
  it("puts the last query on the last key", () => {
    const cached: MaskShape = { queries: 2, keys: 5, causal: true, window: null };
    expect([0, 1].map((q) => allowedKeys(cached, q, q + 1))).toEqual([
      [0, 4],
      [0, 5],
    ]);
  });
  it("counts the query's own key in a window", () => {
    expect(allowedKeys({ ...causal, window: 2 }, 10, 11)).toEqual([9, 11]);
  });
  it("never asks for a tile above the diagonal or behind the window", () => {
    const long: MaskShape = { queries: 2000, keys: 2000, causal: true, window: 300 };
    expect(tileAllowed(long, 0, 0, 1)).toBe(false);
    expect(tileAllowed(long, 0, 1, 1)).toBe(true);
    expect(tileAllowed(long, 0, 5, 3)).toBe(true);
    expect(tileAllowed(long, 0, 5, 2)).toBe(false);
  });
  it("clears exactly the forbidden blocks at every level", () => {
    for (const window of [null, 7]) {
      for (const level of [0, 1, 3]) {
        const mask = { ...causal, window };
        const { rows, cols } = tileShape(mask, level, 0, 0);
        const pixels = new Uint32Array(rows * cols).fill(1);
        clearForbidden(pixels, rows, cols, mask, { level, row: 0, col: 0 });
        const block = 2 ** level;
        const wanted: number[] = [];
        for (let r = 0; r < rows; r++) {
          for (let c = 0; c < cols; c++) {
            let any = 0;
            for (let q = r * block; q < Math.min(65, (r + 1) * block); q++) {
              for (let k = c * block; k < Math.min(65, (c + 1) * block); k++) if (isAllowed(mask, q, k)) any = 1;
            }
            wanted.push(any);
          }
        }
        expect([...pixels], `level ${level}, window ${window}`).toEqual(wanted);
      }
    }
  });
});

describe("the middle of the screen", () => {
  it("is the same cell on either side of a rounding error", () => {
    expect(middleCell({ x: 1023 - 1e-10, y: 1023 + 1e-10, scale: 1 })).toEqual({ query: 1023, key: 1023 });
    expect(middleCell({ x: 600.5, y: 12.9, scale: 1 })).toEqual({ query: 12, key: 600 });
  });
});
