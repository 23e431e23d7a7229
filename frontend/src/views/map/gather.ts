import type { How, MapRef, Source, TileAddress } from "../../source/source";
import { type Camera, type MaskShape, type Size, TILE, tileAllowed, toCell, topLevel } from "./geometry";

/** Which tiles an exported map takes along: the overview whole, and what is on screen as finely as there is room. */

const WHOLE = 16; // levels of at most so many tiles go along entirely
const FINER = 24; // tiles on screen per level finer than the one drawn
const EXACT = 40; // exact tiles go along entirely, and alone, if they are no more than that: all else is pooled from them

export function tilesToKeep(mask: MaskShape, camera: Camera, size: Size, how: How): TileAddress[] {
  const most = Math.ceil(mask.queries / TILE) * Math.ceil(mask.keys / TILE);
  const exact = most <= 2 * EXACT ? tilesOf(mask, 0, "mean") : null;
  if (exact && exact.length <= EXACT) return exact;
  const kept: TileAddress[] = [];
  const [q0, k0] = toCell(camera, size, 0, 0);
  const [q1, k1] = toCell(camera, size, size.width, size.height);
  for (let level = topLevel(mask.queries, mask.keys); level >= 0; level--) {
    const span = TILE * 2 ** level;
    const rows = Math.ceil(mask.queries / span);
    const cols = Math.ceil(mask.keys / span);
    const all: TileAddress[] = [];
    const seen: TileAddress[] = [];
    for (let row = Math.max(0, Math.floor(q0 / span) - WHOLE); row < Math.min(rows, q1 / span + WHOLE); row++) {
      for (let col = Math.max(0, Math.floor(k0 / span) - WHOLE); col < Math.min(cols, k1 / span + WHOLE); col++) {
        if (!tileAllowed(mask, level, row, col)) continue;
        const at = { level, row, col, how: level === 0 ? ("mean" as const) : how };
        all.push(at);
        if (row * span < q1 && (row + 1) * span > q0 && col * span < k1 && (col + 1) * span > k0) seen.push(at);
      }
    }
    const drawn = camera.scale * 2 ** level <= 2 || level === 0; // this level, or a finer one, is what the screen shows
    if (all.length <= WHOLE && rows * cols <= 4 * WHOLE) kept.push(...all);
    else if (!drawn || seen.length <= FINER || camera.scale * 2 ** level >= 1) kept.push(...seen);
  }
  return kept;
}

/** All tiles of a level that hold a pair which may attend. */
function tilesOf(mask: MaskShape, level: number, how: How): TileAddress[] {
  const span = TILE * 2 ** level;
  const [rows, cols] = [Math.ceil(mask.queries / span), Math.ceil(mask.keys / span)];
  const all = Array.from({ length: rows * cols }, (_, i) => ({ level, row: Math.floor(i / cols), col: i % cols, how }));
  return all.filter(({ row, col }) => tileAllowed(mask, level, row, col));
}

/** A few at a time: a server bounds how much it does at once. */
export async function askAll<T>(list: readonly T[], ask: (item: T) => Promise<unknown>, atOnce = 4): Promise<void> {
  const rest = [...list];
  const worker = async (): Promise<void> => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) await ask(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

export async function gatherTiles(source: Source, map: MapRef, tiles: readonly TileAddress[]): Promise<void> {
  await askAll(tiles, (at) => source.tile(map, at));
}
