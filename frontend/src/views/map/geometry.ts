/** Where cells are: levels of the pyramid, the camera, and which blocks the mask allows. Pure functions only. */

export const TILE = 256;

/** Levels from here on are read from a stored overview, which of a long text is made on first look. */
export const COARSE = 5;

/** The coarsest level needed: the first whose whole map fits one tile. */
export function topLevel(queries: number, keys: number): number {
  let level = 0;
  while (Math.ceil(Math.max(queries, keys) / 2 ** level) > TILE) level++;
  return level;
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
  return [
    (key - camera.x) * camera.scale + size.width / 2,
    (query - camera.y) * camera.scale + size.height / 2,
  ];
}

/** The place under a point of the screen, in fractional cells. */
export function toCell(camera: Camera, size: Size, px: number, py: number): [query: number, key: number] {
  return [
    (py - size.height / 2) / camera.scale + camera.y,
    (px - size.width / 2) / camera.scale + camera.x,
  ];
}

/** The camera that shows all of a map with a little air around it. */
export function fit(queries: number, keys: number, size: Size, air = 0.98): Camera {
  const scale = Math.min(size.width / keys, size.height / queries) * air;
  return { x: keys / 2, y: queries / 2, scale };
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
