import { type Picture, xml } from "../../export/exporter";
import { type ColourScale, colourAt, fraction } from "../../parts/colour";
import { legendTicks, tickLabel } from "../../parts/legend";
import { cutOut } from "../../parts/thumbs";
import { type Camera, forbiddenRects, type MaskShape, type Size, toScreen } from "./geometry";
import { NUMBER, type Written } from "./numbers";
import { type Inks, type OverlayScene, overlayShapes } from "./overlay";
import { type AxisScene, axisFont, clip, FONT, type Placed, sceneMarks, thumbOf } from "./paper";
import { printShapes } from "./shapes";

/** The map as it stands, as an SVG: cells as an image, everything else as lines and text. */

const LEFT = 130;
const TOP = 118;
const GAP = 28;
const FOOT = 58;
/** Pixels of a token's name above its column: what the pane's title leaves. */
const TOKEN = TOP - 64;

export interface PanePicture {
  title: string;
  /** The cells as drawn: a PNG as a data address. */
  cells: string;
  size: Size;
  camera: Camera;
  mask: MaskShape;
  overlay: OverlayScene;
  /** Weights written into their cells, where these are large enough. */
  numbers: readonly Written[];
  top: AxisScene;
  left: AxisScene;
}

export function mapPicture(heading: string, panes: PanePicture[], colours: ColourScale, inks: Inks): Picture {
  const width = panes.reduce((sum, pane) => sum + LEFT + pane.size.width + GAP, 0);
  const height = TOP + Math.max(...panes.map((pane) => pane.size.height)) + FOOT;
  let x = 0;
  const drawn = panes.map((pane, i) => {
    const at = x + LEFT;
    x += LEFT + pane.size.width + GAP;
    return printPane(pane, i, at, inks);
  });
  const forbidden = panes.some((pane) => pane.mask.causal);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif" font-size="${FONT}">
<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" fill="${inks.hatchGround}"/><path d="M-2,2L2,-2M0,8L8,0M6,10L10,6" stroke="${inks.hatch}" stroke-width="1"/></pattern></defs>
<rect width="${width}" height="${height}" fill="${inks.surface}"/>
<text x="14" y="24" font-size="15" font-weight="600" fill="${inks.ink}">${xml(cut(heading, (width - 40) * (FONT / 15), true))}</text>
${drawn.join("\n")}
${printLegend(LEFT, height - FOOT + 18, colours, inks, forbidden)}
</svg>`;
  return { width, height, svg };
}

function printPane(pane: PanePicture, index: number, x: number, inks: Inks): string {
  const { size, camera, mask } = pane;
  const [left, top] = toScreen(camera, size, 0, 0);
  const [right, bottom] = toScreen(camera, size, mask.queries, mask.keys);
  const ground = mask.causal ? "url(#hatch)" : inks.sunken;
  return `<g transform="translate(${x} ${TOP})">
<text x="0" y="${-TOP + 46}" font-weight="600" fill="${inks.soft}">${xml(pane.title)}</text>
<clipPath id="pane${index}"><rect width="${size.width}" height="${size.height}"/></clipPath>
<g clip-path="url(#pane${index})">
<rect x="${left}" y="${top}" width="${right - left}" height="${bottom - top}" fill="${ground}" stroke="${inks.line}"/>
<image href="${pane.cells}" width="${size.width}" height="${size.height}" preserveAspectRatio="none" style="image-rendering:pixelated"/>
<path d="${forbiddenRects(camera, size, mask)
    .map(
      ({ x, y, width, height }) =>
        `M${x.toFixed(1)},${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}z`,
    )
    .join("")}" fill="url(#hatch)"/>
${printNumbers(pane.numbers)}
${printShapes(overlayShapes(pane.overlay, inks))}
</g>
<g>${printAxis(pane.top, inks)}</g>
<g>${printAxis(pane.left, inks)}</g>
<text x="-8" y="-22" text-anchor="end" font-weight="600" fill="${inks.key}">keys →</text>
<text x="-8" y="-7" text-anchor="end" font-weight="600" fill="${inks.query}">queries ↓</text>
<rect width="${size.width}" height="${size.height}" fill="none" stroke="${inks.line}"/>
</g>`;
}

function printNumbers(numbers: readonly Written[]): string {
  const texts = numbers.map(
    ({ x, y, text, ink }) => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" fill="${ink}">${xml(text)}</text>`,
  );
  return `<g font-size="${NUMBER}" text-anchor="middle" dominant-baseline="central">${texts.join("")}</g>`;
}

/** Cut to the pixels there are, measured in the font of the picture. */
function cut(text: string, width: number, bold = false): string {
  const context = document.createElement("canvas").getContext("2d");
  if (!context) return text;
  context.font = axisFont(bold);
  return clip(context, text, width);
}

function printAxis(scene: AxisScene, inks: Inks): string {
  const chosen = scene.spot === null ? -1 : scene.side === "top" ? scene.spot.key : scene.spot.query;
  return sceneMarks(scene)
    .filter(({ px }) => px >= 0 && px <= (scene.side === "top" ? scene.size.width : scene.size.height))
    .map((mark) => {
      const bold = mark.kind === "token" && mark.index === chosen;
      const colour = bold
        ? scene.side === "top"
          ? inks.key
          : inks.query
        : mark.kind === "position"
          ? inks.soft
          : inks.ink;
      const tick = mark.kind === "token" ? 0 : mark.kind === "section" ? 8 : 5;
      const style = `fill="${colour}"${bold ? ' font-weight="600"' : ""}`;
      const px = mark.px.toFixed(1);
      const thumb = thumbOf(scene, mark);
      const piece = thumb ? printThumb(scene, thumb, mark.px) : "";
      const near = 5 + (thumb ? thumb.deep + 4 : 0);
      const text = thumb?.name || mark.text;
      if (scene.side === "left") {
        return `${piece}<path d="M${-tick},${px}H0" stroke="${inks.line}"/><text x="${-tick - near}" y="${px}" text-anchor="end" dominant-baseline="central" ${style}>${xml(cut(text, LEFT - 17 - near - tick, bold))}</text>`;
      }
      if (mark.kind === "token") {
        return `${piece}<text transform="translate(${px} ${-near}) rotate(-90)" dominant-baseline="central" ${style}>${xml(cut(text, TOKEN + 5 - near, bold))}</text>`;
      }
      const anchor = mark.kind === "section" ? "start" : "middle";
      return `<path d="M${px},${-tick}V0" stroke="${inks.line}"/><text x="${px}" y="${-tick - 5}" text-anchor="${anchor}" ${style}>${xml(cut(mark.text, Math.min(98, scene.size.width - mark.px + GAP - 8)))}</text>`;
    })
    .join("\n");
}

/** A piece of a picture between the map and the name of its token. */
function printThumb({ side }: AxisScene, thumb: Placed, px: number): string {
  const { along, deep } = thumb;
  const [x, y] = side === "left" ? [-5 - deep, px - along / 2] : [px - along / 2, -5 - deep];
  const [width, height] = side === "left" ? [deep, along] : [along, deep];
  return `<image href="${cutOut(thumb)}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}" preserveAspectRatio="none"/>`;
}

function printLegend(x: number, y: number, colours: ColourScale, inks: Inks, forbidden: boolean): string {
  const width = 240;
  const stops = Array.from(
    { length: 17 },
    (_, i) => `<stop offset="${i / 16}" stop-color="${colourAt(i / 16, colours.palette)}"/>`,
  );
  const ticks = legendTicks(colours).map((value) => {
    const at = (fraction(value, colours) * width).toFixed(1);
    return `<text x="${at}" y="24" text-anchor="middle" fill="${inks.soft}">${xml(tickLabel(value, colours))}</text>`;
  });
  const sign = forbidden
    ? `<rect x="${width + 40}" y="-1" width="12" height="12" fill="url(#hatch)" stroke="${inks.line}"/><text x="${width + 58}" y="9" fill="${inks.soft}">not allowed</text>`
    : "";
  return `<g transform="translate(${x} ${y})"><defs><linearGradient id="scale">${stops.join("")}</linearGradient></defs>
<text x="-12" y="9" text-anchor="end" fill="${inks.soft}">weight</text>
<rect width="${width}" height="10" rx="2" fill="url(#scale)"/>${ticks.join("")}${sign}</g>`;
}
