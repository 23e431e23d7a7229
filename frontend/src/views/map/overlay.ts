import type { Box } from "../../source/source";
import { type Camera, type MaskShape, type Size, toScreen } from "./geometry";
import { dashed, type Shape } from "./shapes";

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
  /** Cells that speak for a kind. */
  marks: readonly Spot[];
}

/** The first keys that so many heads lean on; four of them, as in the statistic of that name. */
export const SINK_KEYS = 4;

export function overlayShapes(scene: OverlayScene, inks: Inks): Shape[] {
  return [...boundaryShapes(scene, inks), ...markShapes(scene), ...boxShapes(scene, inks), ...spotShapes(scene, inks)];
}

function boundaryShapes({ camera, size, mask, documents, overlays }: OverlayScene, inks: Inks): Shape[] {
  const shapes: Shape[] = [];
  const at = (query: number, key: number): [number, number] => toScreen(camera, size, query, key);
  const white = "rgb(255 255 255 / 90%)";
  const halo = "rgb(0 0 0 / 55%)";
  const draw = (from: [number, number], to: [number, number], width: number, steps: number[]): void => {
    const part = dashed(from, to, size, steps);
    if (part) shapes.push({ kind: "line", ...part, colour: white, width, halo });
  };
  if (overlays.sink) {
    const [x, y] = at(0, 0);
    const [right, bottom] = at(mask.queries, Math.min(SINK_KEYS, mask.keys));
    shapes.push({ kind: "rect", x, y, width: right - x, height: bottom - y, colour: inks.key, line: 1.5, halo: white });
  }
  const offset = mask.keys - mask.queries;
  if (overlays.window && mask.causal) {
    for (const shift of mask.window === null ? [offset + 1] : [offset + 1, offset + 1 - mask.window]) {
      const [from, to] = diagonal(mask, shift);
      draw(at(from, from + shift), at(to, to + shift), 1.25, [2, 3]);
    }
  }
  if (overlays.documents) {
    for (const start of documents) {
      if (start <= 0 || start >= mask.keys) continue;
      draw(at(0, start), at(mask.queries, start), 1, [6, 4]);
      draw(at(start - offset, 0), at(start - offset, mask.keys), 1, [6, 4]);
    }
  }
  return shapes;
}

/** The queries between which the line key = query + shift is inside the map. */
function diagonal(mask: MaskShape, shift: number): [from: number, to: number] {
  return [Math.max(0, -shift), Math.min(mask.queries, mask.keys - shift)];
}

/** A frame around every marked cell on screen, with its corners off the cell so that its colour stays in sight. */
function markShapes({ camera, size, marks }: OverlayScene): Shape[] {
  const side = Math.max(7, camera.scale + 3);
  const shapes: Shape[] = [];
  for (const { query, key } of marks) {
    const [x, y] = toScreen(camera, size, query + 0.5, key + 0.5);
    if (x < -side || y < -side || x > size.width + side || y > size.height + side) continue;
    shapes.push({
      kind: "rect",
      x: x - side / 2,
      y: y - side / 2,
      width: side,
      height: side,
      colour: "#ff4fd8",
      line: 1.5,
      halo: "rgb(0 0 0 / 60%)",
    });
  }
  return shapes;
}

function boxShapes({ camera, size, box }: OverlayScene, inks: Inks): Shape[] {
  if (!box) return [];
  const [x, y] = toScreen(camera, size, box.q0, box.k0);
  const [right, bottom] = toScreen(camera, size, box.q1, box.k1);
  return [
    {
      kind: "rect",
      x,
      y,
      width: right - x,
      height: bottom - y,
      colour: "#fff",
      line: 1.5,
      fill: "rgb(255 255 255 / 14%)",
      halo: inks.accent,
    },
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
  const line = (points: [number, number][], colour: string): Shape => ({
    kind: "line",
    points,
    colour,
    width: width + 0.5,
    halo,
  });
  return [
    line(
      [
        [0, y],
        [x - gap, y],
      ],
      inks.query,
    ),
    line(
      [
        [x + gap, y],
        [size.width, y],
      ],
      inks.query,
    ),
    line(
      [
        [x, 0],
        [x, y - gap],
      ],
      inks.key,
    ),
    line(
      [
        [x, y + gap],
        [x, size.height],
      ],
      inks.key,
    ),
  ];
}

function cellFrame(camera: Camera, size: Size, spot: Spot): Shape {
  const side = Math.max(9, camera.scale);
  const [x, y] = toScreen(camera, size, spot.query + 0.5, spot.key + 0.5);
  return {
    kind: "rect",
    x: x - side / 2,
    y: y - side / 2,
    width: side,
    height: side,
    colour: "#fff",
    line: 1.5,
    halo: "#000",
  };
}
