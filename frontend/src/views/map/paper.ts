import type { Thumb, Thumbs } from "../../parts/thumbs";
import type { TokenTable } from "../../parts/tokens";
import { type AxisRange, axisMarks, type Mark, type Section } from "./axes";
import type { Camera, MaskShape, Size } from "./geometry";
import { forbiddenRects, toScreen } from "./geometry";
import type { Inks, Spot } from "./overlay";

/** Painting around and under the map on canvases: the two token axes and the hatching of what is not allowed. */

export function readInks(host: Element): Inks {
  const style = getComputedStyle(host);
  const ink = (name: string): string => style.getPropertyValue(name).trim();
  return {
    ink: ink("--ink"),
    soft: ink("--ink-soft"),
    line: ink("--line-strong"),
    query: ink("--query"),
    key: ink("--key"),
    accent: ink("--accent"),
    hatch: ink("--hatch"),
    hatchGround: ink("--hatch-ground"),
    surface: ink("--surface"),
    sunken: ink("--sunken"),
  };
}

/** Fit a canvas to its box in device pixels and hand out a context in CSS pixels. */
export function prepare(
  canvas: HTMLCanvasElement,
  ratio: number = devicePixelRatio || 1,
): CanvasRenderingContext2D | null {
  const { clientWidth: width, clientHeight: height } = canvas;
  const w = Math.round(width * ratio);
  const h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  if (!context) return null;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const hatches = new Map<string, CanvasPattern | null>();

function hatchPattern(context: CanvasRenderingContext2D, inks: Inks): CanvasPattern | string {
  const name = inks.hatch + inks.hatchGround;
  let pattern = hatches.get(name);
  if (pattern === undefined) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 8;
    const pen = canvas.getContext("2d")!;
    pen.fillStyle = inks.hatchGround;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = inks.hatch;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const shift of [-8, 0, 8]) {
      pen.moveTo(shift - 1, 9);
      pen.lineTo(shift + 9, -1);
    }
    pen.stroke();
    pattern = context.createPattern(canvas, "repeat");
    hatches.set(name, pattern);
  }
  return pattern ?? inks.hatchGround;
}

/** Inside the cells that a causal mask or window allows, and as good as all of them. */
function allowedPath(camera: Camera, size: Size, mask: MaskShape): Path2D {
  const { queries, keys, window } = mask;
  const offset = keys - queries;
  const path = new Path2D();
  const corners: [query: number, key: number][] = [
    [0, offset],
    [queries, keys],
  ];
  if (window === null) corners.push([queries, 0], [0, 0]);
  else
    corners.push(
      [queries, Math.max(0, keys - window + 2)],
      [Math.max(0, window - 2 - offset), 0],
      [0, Math.max(0, offset - window + 2)],
    );
  corners.forEach(([query, key], i) => {
    const [x, y] = toScreen(camera, size, query, Math.max(0, key));
    if (i === 0) path.moveTo(x, y);
    else path.lineTo(x, y);
  });
  path.closePath();
  return path;
}

/** The map's ground: hatched where a causal mask or window forbids, plain where tiles are still to come. */
export function paintGround(
  context: CanvasRenderingContext2D,
  camera: Camera,
  size: Size,
  mask: MaskShape,
  inks: Inks,
): void {
  const [left, top] = toScreen(camera, size, 0, 0);
  const [right, bottom] = toScreen(camera, size, mask.queries, mask.keys);
  context.fillStyle = mask.causal ? hatchPattern(context, inks) : inks.sunken;
  context.fillRect(left, top, right - left, bottom - top);
  if (mask.causal) {
    context.fillStyle = inks.sunken;
    context.fill(allowedPath(camera, size, mask));
  }
  context.strokeStyle = inks.line;
  context.lineWidth = 1;
  context.strokeRect(left - 0.5, top - 0.5, right - left + 1, bottom - top + 1);
}

/** Hatch forbidden cells over tiles that are coarser than the screen: their blocks reach across the diagonal. */
export function paintForbidden(
  context: CanvasRenderingContext2D,
  camera: Camera,
  size: Size,
  mask: MaskShape,
  inks: Inks,
): void {
  context.fillStyle = hatchPattern(context, inks);
  for (const { x, y, width, height } of forbiddenRects(camera, size, mask)) context.fillRect(x, y, width, height);
}

export interface AxisScene {
  side: "top" | "left";
  camera: Camera;
  /** Of the map between the axes. */
  size: Size;
  count: number;
  tokens: TokenTable;
  sections: readonly Section[];
  spot: Spot | null;
  /** Pieces of a picture beside the names of the tokens that stand for them. */
  thumbs: Thumbs | null;
}

export function sceneMarks(scene: AxisScene): Mark[] {
  const { side, camera, size, count, tokens, sections } = scene;
  const length = side === "top" ? size.width : size.height;
  const centre = side === "top" ? camera.x : camera.y;
  const half = length / 2 / camera.scale;
  const range: AxisRange = { from: centre - half, to: centre + half, count, scale: camera.scale };
  return axisMarks(range, tokens, sections, side === "top" ? 104 : 22);
}

export const FONT = 11.5;
const FAMILY = 'ui-sans-serif, system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
export const axisFont = (bold = false): string => `${bold ? "600 " : ""}${FONT}px ${FAMILY}`;

const clipped = new Map<string, string>();

/** Cut a text to a width, with an ellipsis; remembered, since an axis asks for the same ones in every frame. */
export function clip(context: CanvasRenderingContext2D, text: string, width: number): string {
  const name = `${width} ${context.font} ${text}`;
  let cut = clipped.get(name);
  if (cut !== undefined) return cut;
  cut = text;
  if (context.measureText(text).width > width) {
    const letters = Array.from(text);
    while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
    cut = `${letters.join("")}…`;
  }
  if (clipped.size > 5000) clipped.clear();
  clipped.set(name, cut);
  return cut;
}

export function paintAxis(context: CanvasRenderingContext2D, depth: number, scene: AxisScene, inks: Inks): void {
  const { side, spot } = scene;
  const chosen = spot === null ? -1 : side === "top" ? spot.key : spot.query;
  const colour = side === "top" ? inks.key : inks.query;
  context.textBaseline = "middle";
  const label = spot !== null && scene.camera.scale < 13 ? placeOf(scene, chosen) : null;
  for (const mark of sceneMarks(scene)) {
    if (label !== null && isUnder(side, mark, label)) continue;
    const bold = mark.kind === "token" && mark.index === chosen;
    context.font = axisFont(bold);
    context.fillStyle = bold ? colour : mark.kind === "position" ? inks.soft : inks.ink;
    context.strokeStyle = inks.line;
    paintMark(context, depth, side, mark, thumbOf(scene, mark));
  }
  if (label !== null) paintChosen(context, depth, scene, chosen, colour, inks);
}

/** The piece of a picture that stands beside a token's name, and how large it is there. */
export interface Placed extends Thumb {
  along: number;
  deep: number;
}

const LARGEST = 26;

export function thumbOf({ side, camera, thumbs }: AxisScene, mark: Mark): Placed | null {
  const thumb = (mark.kind === "token" && thumbs?.(mark.index)) || null;
  // A frame of a sound is high and narrow, and has no room on the left.
  if (!thumb || (thumb.name === "" && side === "left")) return null;
  const along = Math.min(camera.scale - 1, thumb.name === "" ? camera.scale : LARGEST);
  return { ...thumb, along, deep: thumb.name === "" ? LARGEST : along };
}

function paintMark(
  context: CanvasRenderingContext2D,
  depth: number,
  side: "top" | "left",
  mark: Mark,
  thumb: Placed | null,
): void {
  context.lineWidth = 1;
  const tick = mark.kind === "token" ? 0 : mark.kind === "section" ? 9 : 5;
  const at = Math.round(mark.px) + 0.5;
  const near = 5 + (thumb ? thumb.deep + 4 : 0);
  const text = thumb?.name || mark.text;
  if (thumb) {
    const { image, x, y, width, height, along, deep } = thumb;
    const [px, py] =
      side === "left" ? [depth - 5 - deep, mark.px - along / 2] : [mark.px - along / 2, depth - 5 - deep];
    const [wide, high] = side === "left" ? [deep, along] : [along, deep];
    context.drawImage(image, x, y, width, height, px, py, wide, high);
  }
  if (side === "left") {
    line(context, depth - tick, at, depth, at);
    context.textAlign = "right";
    context.fillText(clip(context, text, depth - 11 - near), depth - near - tick, mark.px);
    return;
  }
  line(context, at, depth - tick, at, depth);
  if (mark.kind === "token") {
    context.save();
    context.translate(mark.px, depth - near);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(clip(context, text, depth - 7 - near), 0, 0);
    context.restore();
    return;
  }
  context.textAlign = mark.kind === "section" ? "left" : "center";
  context.fillText(clip(context, mark.text, 98), mark.kind === "section" ? mark.px - 1 : mark.px, depth - tick - 8);
}

function line(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

function placeOf({ side, camera, size }: AxisScene, index: number): number {
  return toScreen(camera, size, index + 0.5, index + 0.5)[side === "top" ? 0 : 1];
}

/** Whether the label of the chosen token would cover a part of a mark. */
export function isUnder(side: "top" | "left", { px, kind }: Pick<Mark, "px" | "kind">, label: number): boolean {
  if (side === "left") return Math.abs(px - label) < 15;
  return kind === "section" ? px < label + 44 && px + 98 > label - 44 : Math.abs(px - label) < 64;
}

/** The token at the cross-hair, as a label of its own, where single tokens have no room. */
function paintChosen(
  context: CanvasRenderingContext2D,
  depth: number,
  scene: AxisScene,
  index: number,
  colour: string,
  inks: Inks,
): void {
  const { side, camera, size, tokens } = scene;
  const [x, y] = toScreen(camera, size, index + 0.5, index + 0.5);
  context.font = axisFont(true);
  const text = clip(context, tokens.label(index), side === "left" ? depth - 18 : 160);
  const width = context.measureText(text).width + 10;
  const length = side === "top" ? size.width : size.height;
  const place = side === "top" ? x : y;
  if (place < 0 || place > length) return;
  const left = side === "left" ? depth - width - 2 : Math.min(size.width - width, Math.max(0, x - width / 2));
  const top = side === "left" ? y - 9 : depth - 20;
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(left, top, width, 18, 4);
  context.fill();
  context.fillStyle = inks.surface;
  context.textAlign = "left";
  context.fillText(text, left + 5, top + 9.5);
}
