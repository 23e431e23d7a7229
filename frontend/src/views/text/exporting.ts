import { type Exporter, type Picture, xml } from "../../export/exporter";
import type { Source } from "../../source/source";
import { mapRef } from "../../state";
import { askAll } from "../map/gather";
import { blocksOf, LENGTH, stretches } from "./Bipartite";
import { printed } from "./layout";
import { brightness } from "./light";
import type { TextModel } from "./model";
import { arcPath, LINE_HEIGHT, type PageLayout, placeOf } from "./Page";

const MOST_BYTES = 24_000_000;
const HEAD = 64;

/** How the text view becomes a file; `lines` is what the two-column drawing shows instead of the page, if it does. */
export function textExporter(model: TextModel, pages: () => PageLayout[], lines: () => SVGSVGElement | null): Exporter {
  return {
    picture() {
      const drawing = lines();
      if (drawing) return linesPicture(drawing);
      if (pages().length === 0) throw new Error("The text is not on screen.");
      return textPicture(model, pages());
    },
    gather: (source) => gather(model, source, pages().find(({ part }) => part !== "lit") ?? null),
  };
}

interface Inks {
  ink: string;
  surface: string;
  soft: string;
  glow: string;
  mark: string;
}

function inksOf(model: TextModel): Inks {
  const host = document.querySelector(".text-view") ?? document.documentElement;
  const style = getComputedStyle(host);
  const of = (name: string): string => style.getPropertyValue(name).trim();
  const back = model.direction.peek() === "queries";
  return {
    ink: of("--ink"),
    surface: of("--surface"),
    soft: of("--ink-soft"),
    glow: of(back ? "--query-glow" : "--key-glow"),
    mark: of(back ? "--key" : "--query"),
  };
}

/** The lines on screen with their light, as rectangles and text; of two texts, one below the other. */
function textPicture(model: TextModel, pages: PageLayout[]): Picture {
  const inks = inksOf(model);
  const { recording } = model.open;
  const width = Math.max(...pages.map((page) => page.width));
  let bottom = HEAD;
  const drawn = pages.map((page) => {
    const top = bottom;
    bottom += (page.last - page.first) * LINE_HEIGHT + 24;
    return `<g transform="translate(0 ${top - page.first * LINE_HEIGHT})">\n${printPage(model, page, inks).join("\n")}\n</g>`;
  });
  const { layer, head } = mapRef(model.state);
  const which = model.heads.peek() === "one" ? `head ${head}` : `${model.heads.peek()} of all heads`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${bottom}" viewBox="0 0 ${width} ${bottom}">
<rect width="${width}" height="${bottom}" fill="${inks.surface}"/>
<text x="12" y="28" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="15" font-weight="600" fill="${inks.ink}">${xml(`${recording.name} (${recording.model})`)}</text>
<text x="12" y="48" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12" fill="${inks.soft}">${xml(`layer ${layer}, ${which}`)}</text>
<g font-family="'Iowan Old Style', 'Palatino Linotype', Palatino, Georgia, 'DejaVu Serif', serif" font-size="18">
${drawn.join("\n")}
</g>
</svg>`;
  return { width, height: bottom, svg };
}

function printPage(model: TextModel, { layout, tokens, part, first, last }: PageLayout, inks: Inks): string[] {
  const weights = part === "picked" ? null : model.light.peek();
  const most = model.top.peek()[0]?.weight ?? 0;
  const shown = part === "lit" ? null : model.chosen.peek();
  const parts: string[] = [];
  for (let line = first; line < last; line++) {
    const { start, stop } = layout.lines[line]!;
    for (let i = start; i < stop; i++) {
      const [, middle] = placeOf(layout, i);
      const x = 12 + layout.lefts[i]!;
      const light = brightness(weights?.[i] ?? 0, most, model.state.scale.peek());
      const box = `x="${x.toFixed(1)}" y="${(middle - 14).toFixed(1)}" width="${layout.widths[i]!.toFixed(1)}" height="28" rx="4"`;
      if (light > 0.004) parts.push(`<rect ${box} fill="${inks.glow}" fill-opacity="${(light * 0.78).toFixed(3)}"/>`);
      if (i === shown) parts.push(`<rect ${box} fill="none" stroke="${inks.mark}" stroke-width="2"/>`);
      parts.push(
        `<text xml:space="preserve" x="${x.toFixed(1)}" y="${(middle + 6).toFixed(1)}" fill="${i === shown ? inks.mark : inks.ink}">${xml(printed(tokens.raw(i)))}</text>`,
      );
    }
  }
  if (part === "both" && model.arcs.peek() === "on" && shown !== null)
    parts.push(...arcs(model, layout, first, last, shown, inks));
  return parts;
}

function arcs(
  model: TextModel,
  layout: PageLayout["layout"],
  first: number,
  last: number,
  from: number,
  inks: Inks,
): string[] {
  const most = model.top.peek()[0]?.weight ?? 1;
  return model.top
    .peek()
    .filter(({ index }) => index !== from && layout.lineOf[index]! >= first && layout.lineOf[index]! < last)
    .map(({ index, weight }) => {
      const strength = Math.sqrt(weight / most);
      return `<path d="${arcPath(placeOf(layout, from), placeOf(layout, index))}" fill="none" stroke="${inks.glow}" stroke-width="${(1 + 3 * strength).toFixed(2)}" opacity="${(0.3 + 0.6 * strength).toFixed(2)}"/>`;
    });
}

/** The two-column drawing is an SVG already; it only needs the colours that the page's style gave it. */
function linesPicture(drawing: SVGSVGElement): Picture {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const originals = drawing.querySelectorAll<SVGElement>("text, path");
  copy.querySelectorAll<SVGElement>("text, path").forEach((part, i) => {
    const style = getComputedStyle(originals[i]!);
    part.setAttribute("fill", part.tagName === "path" ? "none" : style.fill);
    part.setAttribute("stroke", part.tagName === "path" ? style.stroke : "none");
    part.setAttribute("style", `font:${style.font};dominant-baseline:${style.dominantBaseline}`);
  });
  const { width, height } = drawing.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  copy.setAttribute("style", `background:${getComputedStyle(document.body).backgroundColor}`);
  return { width, height, svg: new XMLSerializer().serializeToString(copy) };
}

/** The light of every token on screen, as far as there is room; the chosen one in any case. */
async function gather(model: TextModel, source: Source, page: PageLayout | null): Promise<void> {
  const { stack } = model.open;
  const { rec, role, layer, head } = mapRef(model.state);
  const back = model.direction.peek() === "queries";
  const one = model.heads.peek() === "one";
  const room = Math.floor(MOST_BYTES / (4 * (back ? stack.queries : stack.keys) * (one ? 1 : stack.heads)));
  const chosen = model.chosen.peek();
  const wanted = new Set<number>(chosen === null ? [] : [chosen]);
  if (page) {
    for (let line = page.first; line < page.last; line++) {
      const { start, stop } = page.layout.lines[line]!;
      for (let i = start; i < stop && wanted.size < room; i++) wanted.add(i);
    }
  }
  await askAll([...wanted], (token) => {
    const line = back ? { key: token } : { query: Math.max(0, token - model.shift) };
    return one ? source.weights({ rec, role, layer, head }, line) : source.layerWeights(rec, role, layer, line);
  });
  if (model.arcs.peek() === "lines" && chosen !== null) await gatherLines(model, source, chosen);
}

async function gatherLines(model: TextModel, source: Source, chosen: number): Promise<void> {
  const map = mapRef(model.state);
  const heads = model.heads.peek() === "one" ? [map.head] : Array.from({ length: model.open.stack.heads }, (_, i) => i);
  const { rows, cols } = blocksOf(stretches(model, chosen, LENGTH));
  const inside = heads.flatMap((head) => rows.flatMap((row) => cols.map((col) => ({ head, row, col }))));
  await askAll(inside, ({ head, row, col }) => source.tile({ ...map, head }, { level: 0, row, col, how: "mean" }));
}
