import { expect, it } from "vitest";

import type { Grid, How } from "../src/source/source";
import { TILE } from "../src/views/map/geometry";
import { joined, quarters } from "../src/views/map/pooling";

const mask = { queries: 301, keys: 263, causal: false, window: null };
const cell = (query: number, key: number): number => Math.fround(((query * 7919 + key * 104729) % 1009) / 1009);

function tile(row: number, col: number): Grid {
  const [rows, cols] = [Math.min(TILE, 301 - row * TILE), Math.min(TILE, 263 - col * TILE)];
  const values = Float32Array.from({ length: rows * cols }, (_, i) =>
    cell(row * TILE + Math.floor(i / cols), col * TILE + (i % cols)),
  );
  return { rows, cols, values };
}

it.each<How>(["max", "mean"])("pools exact tiles to what every block of cells has: %s", (how) => {
  const at = { level: 1, row: 0, col: 0, how };
  const parts = quarters(mask, at).map((part) => ({ part, grid: tile(part.row, part.col) }));
  expect(parts.length).toBe(4);
  const grid = joined(mask, at, parts);
  expect([grid.rows, grid.cols]).toEqual([151, 132]);
  for (const [r, c] of [
    [0, 0],
    [127, 128],
    [128, 3],
    [150, 131],
    [150, 0],
    [3, 131],
  ] as const) {
    const cells = [0, 1]
      .flatMap((dq) => [0, 1].map((dk) => [2 * r + dq, 2 * c + dk] as const))
      .filter(([q, k]) => q < 301 && k < 263);
    const values = cells.map(([q, k]) => cell(q, k));
    const wanted = how === "max" ? Math.max(...values) : values.reduce((sum, value) => sum + value, 0) / values.length;
    expect(grid.values[r * grid.cols + c]).toBeCloseTo(wanted, 6);
  }
});
