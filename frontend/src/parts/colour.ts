import { interpolateCividis, interpolateInferno, interpolateMagma, interpolateViridis } from "d3-scale-chromatic";

import type { PaletteName, ScaleName } from "../state";

/** How weights become colours: perceptually uniform palettes that survive colour blindness and greyscale print. */

export interface ColourScale {
  palette: PaletteName;
  scale: ScaleName;
  /** Weights at and below `low` get the first colour, at and above `high` the last. */
  low: number;
  high: number;
}

/** A scale for maps of so many keys: on a log scale it reaches a decade below an even spread over them. */
export function scaleFor(keys: number, palette: PaletteName, scale: ScaleName, high: number): ColourScale {
  const low = scale === "log" ? Math.min(high / 100, 10 ** (Math.floor(Math.log10(1 / keys)) - 1)) : 0;
  return { palette, scale, low, high };
}

/** The weight that the reader wants brightest, as the address has it; null where it is left to the view. */
export function brightest(text: string): number | null {
  const high = Number(text);
  return high > 0 && high <= 1 ? high : null;
}

const STOPS = 256;

function greys(t: number): string {
  const level = Math.round(255 * (1 - t) * 0.96 + 4);
  return `rgb(${level}, ${level}, ${level})`;
}

const INTERPOLATORS: Record<PaletteName, (t: number) => string> = {
  viridis: interpolateViridis,
  cividis: interpolateCividis,
  inferno: interpolateInferno,
  magma: interpolateMagma,
  greys,
};

function parse(colour: string): [number, number, number] {
  if (colour.startsWith("#")) {
    const bits = Number.parseInt(colour.slice(1), 16);
    return [(bits >> 16) & 255, (bits >> 8) & 255, bits & 255];
  }
  const [r = 0, g = 0, b = 0] = colour.match(/[\d.]+/g)?.map(Number) ?? [];
  return [Math.round(r), Math.round(g), Math.round(b)];
}

const tables = new Map<PaletteName, Uint32Array>();

/** 256 colours, each as the four bytes that a canvas wants (little-endian ABGR, opaque). */
export function colourTable(palette: PaletteName): Uint32Array {
  let table = tables.get(palette);
  if (!table) {
    table = new Uint32Array(STOPS);
    for (let i = 0; i < STOPS; i++) {
      const [r, g, b] = parse(INTERPOLATORS[palette](i / (STOPS - 1)));
      table[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    }
    tables.set(palette, table);
  }
  return table;
}

/** Where a weight lies between the two ends of a scale: 0 … 1. */
export function fraction(value: number, { scale, low, high }: ColourScale): number {
  if (!(value > 0)) return 0;
  const t = scale === "log" ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return t < 0 ? 0 : Math.min(t, 1);
}

/** The weight at a fraction of the scale; the inverse of `fraction`. */
export function valueAt(t: number, { scale, low, high }: ColourScale): number {
  return scale === "log" ? low * (high / low) ** t : low + t * (high - low);
}

export function colourAt(t: number, palette: PaletteName): string {
  const [r, g, b] = parse(INTERPOLATORS[palette](Math.min(1, Math.max(0, t))));
  return `rgb(${r}, ${g}, ${b})`;
}

export function colourOf(value: number, scale: ColourScale): string {
  return colourAt(fraction(value, scale), scale.palette);
}

/** Black or white, whichever reads better on a colour. */
export function inkOn(colour: string): "#000" | "#fff" {
  const [r, g, b] = parse(colour).map((byte) => {
    const c = byte / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return luminance > 0.179 ? "#000" : "#fff";
}

/** Colours for a log scale are looked up from the float's own bits, since a logarithm per cell is too slow. */
export function paint(values: Float32Array, pixels: Uint32Array, scale: ColourScale): void {
  const table = colourTable(scale.palette);
  const last = STOPS - 1;
  if (scale.scale === "linear") {
    const factor = last / (scale.high - scale.low);
    for (let i = 0; i < values.length; i++) {
      const t = (values[i]! - scale.low) * factor;
      pixels[i] = table[t > 0 ? (t < last ? (t + 0.5) | 0 : last) : 0]!;
    }
    return;
  }
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const lookup = logTable(scale, table);
  for (let i = 0; i < values.length; i++) pixels[i] = lookup[bits[i]! >>> 16]!;
}

let logKey = "";
let logLookup = new Uint32Array(0);

/** One colour for each upper half of a positive float: 2^7 steps per octave, finer than 256 colours need. */
function logTable(scale: ColourScale, table: Uint32Array): Uint32Array {
  const key = `${scale.palette} ${scale.low} ${scale.high}`;
  if (key === logKey) return logLookup;
  const lookup = new Uint32Array(1 << 16);
  const half = new Uint32Array(1);
  const float = new Float32Array(half.buffer);
  for (let i = 0; i < lookup.length; i++) {
    half[0] = ((i << 16) | 0x8000) >>> 0;
    lookup[i] = table[Math.round(fraction(float[0]!, scale) * (STOPS - 1))]!;
  }
  lookup[0] = table[0]!;
  logKey = key;
  logLookup = lookup;
  return lookup;
}
