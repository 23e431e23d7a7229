import type { Sight } from "../../source/source";
import type { TextModel } from "../text/model";

/** Where the patches of a picture lie, as shares of its width and height. */

export interface Patch {
  left: number;
  top: number;
  width: number;
  height: number;
}

export function isIn(picture: Sight, token: number): boolean {
  return token >= picture.start && token < picture.start + picture.rows * picture.columns;
}

/** The patch that a token stands for. */
export function patchOf({ start, rows, columns }: Sight, token: number): Patch {
  const place = token - start;
  return {
    left: (place % columns) / columns,
    top: Math.floor(place / columns) / rows,
    width: 1 / columns,
    height: 1 / rows,
  };
}

/** The token under a point, given as shares of the width and the height. */
export function tokenAt({ start, rows, columns }: Sight, x: number, y: number): number {
  const column = Math.min(columns - 1, Math.max(0, Math.floor(x * columns)));
  const row = Math.min(rows - 1, Math.max(0, Math.floor(y * rows)));
  return start + row * columns + column;
}

/** The token one patch further, or the same one at the edge. */
export function stepFrom(picture: Sight, token: number, right: number, down: number): number {
  const { start, rows, columns } = picture;
  const place = isIn(picture, token) ? token - start : 0;
  const column = Math.min(columns - 1, Math.max(0, (place % columns) + right));
  const row = Math.min(rows - 1, Math.max(0, Math.floor(place / columns) + down));
  return start + row * columns + column;
}

/** Where a token of this name begins in the sound, in seconds; null where it is no frame. */
export function secondsOf(name: string): number | null {
  const found = /^(\d+(?:\.\d+)?) s$/.exec(name);
  return found ? Number(found[1]) : null;
}

/** What a patch or a frame is called: by row and column, or by its time. */
export function nameOf(picture: Sight, token: number, label: string): string {
  if (picture.kind === "sound") return secondsOf(label) === null ? `frame ${token - picture.start}` : label;
  const place = token - picture.start;
  return `row ${Math.floor(place / picture.columns)}, column ${place % picture.columns}`;
}

/** Pick a patch: it is asked about, or, where queries are another text, the question is turned round. */
export function pick(model: TextModel, token: number): void {
  if (model.open.apart && model.direction.peek() === "keys") model.follow(token);
  else model.choose(token);
}

/** Whether patches are among what lights up; of cross-attention they are so in one direction only. */
export function lightsUp(model: TextModel): boolean {
  return !model.open.apart || model.direction.value === "keys";
}
