/** Where cells are: levels of the pyramid, the camera, and which blocks the mask allows. Pure functions only. */

import type { Box } from "../../source/source";

export const TILE = 256;

/** Levels from here on are read from a stored overview, which of a long text is made on first look. */
export const COARSE = 5;

/** The coarsest level needed: the first whose whole map fits one tile. */
export function topLevel(queries: number, keys: number): number {
  let level = 0;
  while (Math.ceil(Math.max(queries, keys) / 2 ** level) > TILE) level++;
  return level;
}

/** The level that is drawn at so many pixels a cell: its blocks are the smallest of at least one pixel. */
export function drawnLevel(scale: number, top: number): number {
  return Math.min(top, Math.max(0, Math.ceil(-Math.log2(scale) - 1e-9)));
}

/** The block of a level that a cell is in; the last ones are cut off by the map's edge. */
export function blockOf(query: number, key: number, level: number, queries: number, keys: number): Box {
  const side = 2 ** level;
  const [q0, k0] = [Math.floor(query / side) * side, Math.floor(key / side) * side];
  return { q0, q1: Math.min(queries, q0 + side), k0, k1: Math.min(keys, k0 + side) };
}

/** What the reader sees: the cell at the middle of the screen (x: key, y: query) and the pixels per cell. */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

export function toScreen(camera: Camera, size: Size, query: number, key: number): [x: number, y: number] {
  return [(key - camera.x) * camera.scale + size.width / 2, (query - camera.y) * camera.scale + size.height / 2];
}

/** The place under a point of the screen, in fractional cells. */
export function toCell(camera: Camera, size: Size, px: number, py: number): [query: number, key: number] {
  return [(py - size.height / 2) / camera.scale + camera.y, (px - size.width / 2) / camera.scale + camera.x];
}

/** The camera that shows all of a map with a little air around it. */
export function fit(queries: number, keys: number, size: Size, air = 0.98): Camera {
  const scale = Math.min(size.width / keys, size.height / queries) * air;
  return { x: keys / 2, y: queries / 2, scale };
}

/**
 * The cell in the middle of the screen. The middle of an even number of cells is an edge between two of them,
 * and a camera may come to rest a rounding error beside it: a size of the window must not choose another cell.
 */
export function middleCell(camera: Camera): { query: number; key: number } {
  return { query: Math.floor(camera.y + 1e-6), key: Math.floor(camera.x + 1e-6) };
}

/** Whether two cameras show the same, to a pixel. */
export function isNear(a: Camera, b: Camera): boolean {
  return (
    Math.abs(a.x - b.x) * b.scale < 1 && Math.abs(a.y - b.y) * b.scale < 1 && Math.abs(a.scale / b.scale - 1) < 0.002
  );
}

/** Whether all of a map is on screen. */
export function showsAll(camera: Camera, size: Size, queries: number, keys: number): boolean {
  const [top, left] = toCell(camera, size, 0, 0);
  const [bottom, right] = toCell(camera, size, size.width, size.height);
  return top <= 0 && left <= 0 && bottom >= queries && right >= keys;
}

/** Which pairs may attend, as far as the page knows: enough to tell "not allowed" from "nearly nothing". */
export interface MaskShape {
  queries: number;
  keys: number;
  causal: boolean;
  /** Keys a query sees, its own included; null without a window. Means something only under a causal mask. */
  window: number | null;
}

/** The keys a range of queries [q0, q1) may see between them: half open, empty where start ≥ stop. */
export function allowedKeys(mask: MaskShape, q0: number, q1: number): [start: number, stop: number] {
  if (!mask.causal) return [0, mask.keys];
  const offset = mask.keys - mask.queries; // the last query sits on the last key
  const stop = Math.min(mask.keys, Math.min(q1, mask.queries) + offset);
  const start = mask.window === null ? 0 : Math.max(0, q0 + offset - mask.window + 1);
  return [start, Math.max(0, stop)];
}

export function isAllowed(mask: MaskShape, query: number, key: number): boolean {
  const [start, stop] = allowedKeys(mask, query, query + 1);
  return key >= start && key < stop;
}

/** What is on screen of the forbidden cells, row by row, as rectangles; nothing where a cell is less than a pixel. */
export function forbiddenRects(
  camera: Camera,
  size: Size,
  mask: MaskShape,
): { x: number; y: number; width: number; height: number }[] {
  if (!mask.causal || camera.scale < 1) return [];
  const [top] = toCell(camera, size, 0, 0);
  const [bottom] = toCell(camera, size, size.width, size.height);
  const rects = [];
  for (let query = Math.max(0, Math.floor(top)); query < Math.min(mask.queries, bottom); query++) {
    const [start, stop] = allowedKeys(mask, query, query + 1);
    for (const [from, to] of [
      [0, Math.min(start, mask.keys)],
      [Math.max(0, stop), mask.keys],
    ] as const) {
      if (from >= to) continue;
      const [x, y] = toScreen(camera, size, query, from);
      const [left, right] = [Math.max(0, x), Math.min(size.width, x + (to - from) * camera.scale)];
      if (left < right) rects.push({ x: left, y, width: right - left, height: camera.scale });
    }
  }
  return rects;
}

/** Whether a tile holds any pair that may attend; the others are never asked for. */
export function tileAllowed(mask: MaskShape, level: number, row: number, col: number): boolean {
  const span = TILE * 2 ** level;
  const [start, stop] = allowedKeys(mask, row * span, (row + 1) * span);
  return start < stop && col * span < stop && (col + 1) * span > start;
}

/** The share of a side that is inside the map, for the shape of a tile that never came from anywhere. */
export function tileShape(mask: MaskShape, level: number, row: number, col: number): { rows: number; cols: number } {
  const side = (count: number, at: number): number =>
    Math.max(0, Math.min(TILE, Math.ceil(count / 2 ** level) - at * TILE));
  return { rows: side(mask.queries, row), cols: side(mask.keys, col) };
}

/** Make the pixels of forbidden blocks transparent, row by row, so that the hatching below shows through. */
export function clearForbidden(
  pixels: Uint32Array,
  rows: number,
  cols: number,
  mask: MaskShape,
  at: { level: number; row: number; col: number },
): void {
  if (!mask.causal) return;
  const block = 2 ** at.level;
  for (let r = 0; r < rows; r++) {
    const q0 = (at.row * TILE + r) * block;
    const [start, stop] = allowedKeys(mask, q0, q0 + block);
    const first = Math.floor(start / block) - at.col * TILE;
    const last = Math.ceil(stop / block) - at.col * TILE;
    if (first > 0) pixels.fill(0, r * cols, r * cols + Math.min(cols, first));
    if (last < cols) pixels.fill(0, r * cols + Math.max(0, last), (r + 1) * cols);
  }
}
