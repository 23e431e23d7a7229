import type { Grid, TileAddress } from "../../source/source";
import { type MaskShape, TILE, tileShape } from "./geometry";

/** Coarse tiles made of finer ones, as the server pools them: what an exported page of exact cells needs no copies of. */

/** The tiles of the next finer level under a tile, those inside the map. */
export function quarters(mask: MaskShape, { level, row, col, how }: TileAddress): TileAddress[] {
  return [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
  ]
    .map(([down, right]) => ({ level: level - 1, row: 2 * row + down!, col: 2 * col + right!, how }))
    .filter((at) => {
      const { rows, cols } = tileShape(mask, at.level, at.row, at.col);
      return rows > 0 && cols > 0;
    });
}

/** Blocks joined two by two: the largest of the four, or their mean by the number of cells in each. */
export function joined(mask: MaskShape, at: TileAddress, parts: readonly { part: TileAddress; grid: Grid }[]): Grid {
  const { rows, cols } = tileShape(mask, at.level, at.row, at.col);
  const values = new Float32Array(rows * cols);
  const cells = new Float32Array(rows * cols);
  const side = 2 ** (at.level - 1);
  for (const { part, grid } of parts) {
    const [down, right] = [(part.row - 2 * at.row) * TILE, (part.col - 2 * at.col) * TILE];
    for (let r = 0; r < grid.rows; r++) {
      const high = Math.min(side, mask.queries - (part.row * TILE + r) * side);
      for (let c = 0; c < grid.cols; c++) {
        const wide = Math.min(side, mask.keys - (part.col * TILE + c) * side);
        const to = ((down + r) >> 1) * cols + ((right + c) >> 1);
        const value = grid.values[r * grid.cols + c]!;
        if (at.how === "max") values[to] = Math.max(values[to]!, value);
        else values[to]! += value * high * wide;
        cells[to]! += high * wide;
      }
    }
  }
  if (at.how === "mean") for (let i = 0; i < values.length; i++) values[i]! /= cells[i]! || 1;
  return { rows, cols, values };
}
