/** Weights written into their cells, where cells are large enough to hold a number. */

import { type ColourScale, colourOf, inkOn } from "../../parts/colour";
import { formatNumber, formatWeight } from "../../parts/format";
import { type Camera, isAllowed, type MaskShape, type Size, toCell, toScreen } from "./geometry";

/** Pixels that a cell needs for four digits. */
export const ROOM = 46;

export interface Written {
  x: number;
  y: number;
  text: string;
  ink: string;
}

/** What is written on the screen; `value` is null where an exact tile is not at hand. */
export function numbersOn(
  camera: Camera,
  size: Size,
  mask: MaskShape,
  colours: ColourScale,
  value: (query: number, key: number) => number | null,
): Written[] {
  if (camera.scale < ROOM) return [];
  const [top, left] = toCell(camera, size, 0, 0);
  const [bottom, right] = toCell(camera, size, size.width, size.height);
  const written: Written[] = [];
  for (let query = Math.max(0, Math.floor(top)); query < Math.min(mask.queries, bottom); query++) {
    for (let key = Math.max(0, Math.floor(left)); key < Math.min(mask.keys, right); key++) {
      const weight = isAllowed(mask, query, key) ? value(query, key) : null;
      if (weight === null) continue;
      const [x, y] = toScreen(camera, size, query + 0.5, key + 0.5);
      written.push({ x, y, text: cellText(weight), ink: inkOn(colourOf(weight, colours)) });
    }
  }
  return written;
}

/** Powers of ten leave room for one digit. */
function cellText(weight: number): string {
  return weight > 0 && weight < 0.001 ? formatNumber(weight, 1) : formatWeight(weight);
}

/** The font of numbers in cells, in pixels. */
export const NUMBER = 11;

export function paintNumbers(context: CanvasRenderingContext2D, written: readonly Written[]): void {
  context.font = `${NUMBER}px ui-sans-serif, system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const { x, y, text, ink } of written) {
    context.fillStyle = ink;
    context.fillText(text, x, y);
  }
}
