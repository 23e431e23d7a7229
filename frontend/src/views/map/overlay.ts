import type { Box } from "../../source/source";
import { type Camera, type MaskShape, type Size, toScreen } from "./geometry";
import type { Shape } from "./shapes";

export interface Spot {
  query: number;
  key: number;
}

export interface Overlays {
  window: boolean;
  sink: boolean;
  documents: boolean;
}

/** Colours of the page, as a canvas needs them: resolved. */
export interface Inks {
  ink: string;
  soft: string;
  line: string;
  query: string;
  key: string;
  accent: string;
  hatch: string;
  hatchGround: string;
  surface: string;
  sunken: string;
}

export interface OverlayScene {
  camera: Camera;
  size: Size;
  mask: MaskShape;
  documents: readonly number[];
  overlays: Overlays;
  hover: Spot | null;
  pinned: Spot | null;
  box: Box | null;
}

/** The first keys that so many heads lean on; four of them, as in the statistic of that name. */
export const SINK_KEYS = 4;

export function overlayShapes(scene: OverlayScene, inks: Inks): Shape[] {
  return [...boundaryShapes(scene, inks), ...boxShapes(scene, inks), ...spotShapes(scene, inks)];
}

function boundaryShapes({ camera, size, mask, documents, overlays }: OverlayScene, inks: Inks): Shape[] {
  const shapes: Shape[] = [];
  const at = (query: number, key: number): [number, number] => toScreen(camera, size, query, key);
  const white = "rgb(255 255 255 / 90%)";
  const dark = "rgb(0 0 0 / 55%)";
  if (overlays.sink) {
    const [x, y] = at(0, 0);
    const [right, bottom] = at(mask.queries, Math.min(SINK_KEYS, mask.keys));
    shapes.push({ kind: "rect", x, y, width: right - x, height: bottom - y, colour: inks.key, line: 1.5, halo: white });
  }
  if (overlays.window && mask.causal) {
    const offset = mask.keys - mask.queries;
    shapes.push(diagonal(at, mask, offset + 1, white, dark));
    if (mask.window !== null) shapes.push(diagonal(at, mask, offset + 1 - mask.window, white, dark));
  }
  if (overlays.documents) {
    for (const start of documents) {
      if (start <= 0 || start >= mask.keys) continue;
      const [x, top] = at(0, start);
      const [left, y] = at(start - (mask.keys - mask.queries), 0);
      const [right, bottom] = at(mask.queries, mask.keys);
      shapes.push({ kind: "line", points: [[x, top], [x, bottom]], colour: white, width: 1, dash: [6, 4], halo: dark });
      shapes.push({ kind: "line", points: [[left, y], [right, y]], colour: white, width: 1, dash: [6, 4], halo: dark });
    }
  }
  return shapes;
}

/** The line key = query + shift, cut to the map. */
function diagonal(
  at: (query: number, key: number) => [number, number],
  mask: MaskShape,
  shift: number,
  colour: string,
  halo: string,
): Shape {
  const from = Math.max(0, -shift);
  const to = Math.min(mask.queries, mask.keys - shift);
  return { kind: "line", points: [at(from, from + shift), at(to, to + shift)], colour, width: 1.25, dash: [2, 3], halo };
}

function boxShapes({ camera, size, box }: OverlayScene, inks: Inks): Shape[] {
  if (!box) return [];
  const [x, y] = toScreen(camera, size, box.q0, box.k0);
  const [right, bottom] = toScreen(camera, size, box.q1, box.k1);
  return [
    { kind: "rect", x, y, width: right - x, height: bottom - y, colour: "#fff", line: 1.5, fill: "rgb(255 255 255 / 14%)", halo: inks.accent },
  ];
}

function spotShapes({ camera, size, hover, pinned }: OverlayScene, inks: Inks): Shape[] {
  const shapes: Shape[] = [];
  if (hover) shapes.push(...crossHair(camera, size, hover, inks, 0.75));
  if (pinned) {
    if (!hover) shapes.push(...crossHair(camera, size, pinned, inks, 1));
    shapes.push(cellFrame(camera, size, pinned));
  }
  return shapes;
}

function crossHair(camera: Camera, size: Size, spot: Spot, inks: Inks, width: number): Shape[] {
  const [x, y] = toScreen(camera, size, spot.query + 0.5, spot.key + 0.5);
  const halo = "rgb(255 255 255 / 55%)";
  const gap = Math.max(7, camera.scale / 2);
  const line = (points: [number, number][], colour: string): Shape => ({ kind: "line", points, colour, width: width + 0.5, halo });
  return [
    line([[0, y], [x - gap, y]], inks.query),
    line([[x + gap, y], [size.width, y]], inks.query),
    line([[x, 0], [x, y - gap]], inks.key),
    line([[x, y + gap], [x, size.height]], inks.key),
  ];
}

function cellFrame(camera: Camera, size: Size, spot: Spot): Shape {
  const side = Math.max(9, camera.scale);
  const [x, y] = toScreen(camera, size, spot.query + 0.5, spot.key + 0.5);
  return { kind: "rect", x: x - side / 2, y: y - side / 2, width: side, height: side, colour: "#fff", line: 1.5, halo: "#000" };
}
