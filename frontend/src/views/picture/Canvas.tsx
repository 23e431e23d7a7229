import { useEffect, useRef, useState } from "preact/hooks";

import { colourAt, colourTable } from "../../parts/colour";
import { formatPercent, formatWeight } from "../../parts/format";
import type { Sight } from "../../source/source";
import type { PaletteName } from "../../state";
import { brightness } from "../text/light";
import type { TextModel } from "../text/model";
import { isIn, lightsUp, nameOf, patchOf, pick, secondsOf, stepFrom, tokenAt } from "./places";
import { listensAt, type Word } from "./said";

const STEPS: Record<string, [right: number, down: number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};
/** Of the colour over the brightest patch and over a dark one. */
const [STRONG, FAINT] = [0.66, 0.12];

interface CanvasProps {
  model: TextModel;
  picture: Sight;
  /** What was said in a sound. */
  words: readonly Word[];
  alone: boolean;
}

/** One picture with its weights over it. Click a patch to ask about it. */
export function Canvas({ model, picture, words, alone }: CanvasProps) {
  const sheet = useRef<HTMLCanvasElement>(null);
  const [pointed, point] = useState<number | null>(null);
  const light = lightsUp(model) ? model.light.value : null;
  const scale = model.state.scale.value;
  const palette = model.state.palette.value;
  const { start, rows, columns } = picture;
  const own = light?.subarray(start, start + rows * columns) ?? null;
  const most = own?.reduce((a, b) => Math.max(a, b), 0) ?? 0;
  useEffect(() => {
    if (sheet.current) paintHeat(sheet.current, own, most, scale, palette);
  }, [light, picture, scale, palette]);

  const size = sizeOf(picture);
  const chosen = model.chosen.value;
  const asked = chosen !== null && !(model.open.apart && lightsUp(model)) && isIn(picture, chosen) ? chosen : null;
  const at = (event: MouseEvent): number => {
    const { left, top, width, height } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return tokenAt(picture, (event.clientX - left) / width, (event.clientY - top) / height);
  };
  const step = (event: KeyboardEvent): void => {
    const by = STEPS[event.key];
    if (!by) return;
    event.preventDefault();
    pick(model, stepFrom(picture, asked ?? start, ...by));
  };
  const look = pointed ?? asked;
  return (
    <figure class={`picture picture-${picture.kind} ${alone ? "picture-alone" : ""}`} data-testid="picture">
      <figcaption>
        <b>{picture.name}</b>{" "}
        {own && (
          <span class="soft" data-testid="picture-share">
            {shareOf(model, own)}
          </span>
        )}
      </figcaption>
      <div
        class="picture-frame"
        role="application"
        tabIndex={0}
        aria-label={`${picture.name}: ${rows * columns} places. Arrow keys choose one to ask about.`}
        style={{ aspectRatio: picture.kind === "sound" ? undefined : `${size.width} / ${size.height}` }}
        onClick={(event) => pick(model, at(event))}
        onKeyDown={step}
        onMouseMove={(event) => point(at(event))}
        onMouseLeave={() => point(null)}
      >
        <img src={`data:image/png;base64,${picture.png}`} alt="" draggable={false} />
        <canvas ref={sheet} width={columns} height={rows} aria-hidden="true" />
        <Starts model={model} picture={picture} words={words} />
        {asked !== null && <Outline picture={picture} token={asked} kind="asked" />}
        {pointed !== null && <Outline picture={picture} token={pointed} kind="pointed" />}
      </div>
      {picture.kind === "sound" && <Seconds model={model} picture={picture} />}
      {own && most > 0 && <Range most={most} linear={scale === "linear"} palette={palette} />}
      <p class="small soft picture-said" aria-live="polite" data-testid="picture-said">
        {look === null
          ? "Point at a place to read its weight; click it to ask about it."
          : `${nameOf(picture, look, model.open.tokens.label(look))}${own ? `: ${formatWeight(own[look - start] ?? 0)}` : ""}`}
      </p>
    </figure>
  );
}

function Outline({ picture, token, kind }: { picture: Sight; token: number; kind: string }) {
  const { left, top, width, height } = patchOf(picture, token);
  const percent = (share: number): string => `${100 * share}%`;
  return (
    <i
      class={`picture-${kind}`}
      style={{ left: percent(left), top: percent(top), width: percent(width), height: percent(height) }}
    />
  );
}

/** A line where each word begins in the sound, a strong one for the word that is listened for. */
function Starts({ model, picture, words }: { model: TextModel; picture: Sight; words: readonly Word[] }) {
  const { start, columns } = picture;
  const [first, second] = [0, 1].map((frame) => secondsOf(model.open.tokens.raw(start + frame)) ?? 0) as [
    number,
    number,
  ];
  const length = columns * (second - first);
  if (picture.kind !== "sound" || !(length > 0)) return null;
  const chosen = lightsUp(model) ? model.chosen.value : null;
  return words.map((word) => (
    <i
      key={word.first}
      class={`picture-spoken ${listensAt(word) === chosen ? "chosen" : ""}`}
      style={{ left: `${(100 * (word.seconds - first)) / length}%` }}
    />
  ));
}

/** Five times under a spectrogram, evenly spread. */
function Seconds({ model, picture }: { model: TextModel; picture: Sight }) {
  const last = picture.columns - 1;
  const frames = [0, 1, 2, 3, 4].map((part) => Math.round((part * last) / 4));
  const named = frames.map((frame) => secondsOf(model.open.tokens.raw(picture.start + frame)));
  if (named.some((seconds) => seconds === null)) return null;
  return (
    <div class="picture-seconds small soft" aria-hidden="true">
      {named.map((seconds) => (
        <span key={seconds}>{seconds!.toFixed(2)} s</span>
      ))}
    </div>
  );
}

/** What a colour means: from nothing to the heaviest place of this picture. */
function Range({ most, linear, palette }: { most: number; linear: boolean; palette: PaletteName }) {
  const stops = [0, 0.25, 0.5, 0.75, 1].map((at) => colourAt(at, palette)).join(", ");
  return (
    <p class="picture-range small soft" data-testid="picture-range">
      <span>{linear ? "0" : `below ${formatWeight(most / 1000)}`}</span>
      <i aria-hidden="true" style={{ background: `linear-gradient(to right, ${stops})` }} />
      <span>{formatWeight(most)}</span>
    </p>
  );
}

function shareOf(model: TextModel, own: Float32Array): string {
  if (model.heads.value === "max") return "the heaviest of all heads, place by place";
  const share = own.reduce((sum, weight) => sum + weight, 0);
  return model.direction.value === "keys"
    ? `${formatPercent(share)} of the weight is on it`
    : `${formatWeight(share)} in all, from it`;
}

function paintHeat(
  sheet: HTMLCanvasElement,
  own: Float32Array | null,
  most: number,
  scale: "linear" | "log",
  palette: PaletteName,
): void {
  const context = sheet.getContext("2d");
  if (!context) return;
  const image = context.createImageData(sheet.width, sheet.height);
  if (own) {
    const table = colourTable(palette);
    const pixels = new Uint32Array(image.data.buffer);
    own.forEach((weight, i) => {
      const bright = brightness(weight, most, scale);
      const opacity = Math.round(255 * (FAINT + (STRONG - FAINT) * bright));
      pixels[i] = ((table[Math.round(255 * bright)]! & 0xffffff) | (opacity << 24)) >>> 0;
    });
  }
  context.putImageData(image, 0, 0);
}

/** Of a PNG: its width and height stand at bytes 16 to 24. */
function sizeOf({ png }: Sight): { width: number; height: number } {
  const head = atob(png.slice(0, 32));
  const number = (at: number): number => [0, 1, 2, 3].reduce((sum, i) => 256 * sum + head.charCodeAt(at + i), 0);
  return { width: number(16), height: number(20) };
}
