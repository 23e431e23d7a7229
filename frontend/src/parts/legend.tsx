import { useEffect, useRef } from "preact/hooks";

import { type ColourScale, colourAt, fraction } from "./colour";
import { formatNumber, raised } from "./format";

/** Round values for the ticks of a colour scale: decades on a log scale, four steps on a linear one. */
export function legendTicks(scale: ColourScale, most = 5): number[] {
  if (scale.scale === "log") {
    const first = Math.ceil(Math.log10(scale.low) - 1e-9);
    const last = Math.floor(Math.log10(scale.high) + 1e-9);
    const stride = Math.max(1, Math.ceil((last - first + 1) / most));
    const ticks: number[] = [];
    for (let e = last; e >= first; e -= stride) ticks.push(10 ** e);
    return ticks.reverse();
  }
  const span = scale.high - scale.low;
  const base = 10 ** Math.floor(Math.log10(span / (most - 1)));
  const step = [1, 2, 5, 10].map((m) => m * base).find((s) => span / s <= most - 1) ?? span;
  const ticks: number[] = [];
  for (let v = Math.ceil(scale.low / step) * step; v <= scale.high * (1 + 1e-9); v += step) ticks.push(v);
  return ticks;
}

export function tickLabel(value: number, scale: ColourScale): string {
  if (scale.scale === "log" && value > 0 && value < 0.01) {
    return raised(Math.round(Math.log10(value)));
  }
  return formatNumber(value, 3);
}

/** The colour bar: what a colour means, with the sign for cells that the mask forbids. */
export function Legend({ scale, title, forbidden }: { scale: ColourScale; title: string; forbidden?: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    for (let i = 0; i < 256; i++) {
      context.fillStyle = colourAt(i / 255, scale.palette);
      context.fillRect(i, 0, 1, 1);
    }
  }, [scale.palette]);
  return (
    <figure
      class="legend"
      data-testid="legend"
      aria-label={`${title}: colours from ${formatNumber(scale.low)} to ${formatNumber(scale.high)}`}
    >
      <figcaption>{title}</figcaption>
      <div class="legend-bar">
        <canvas ref={canvas} width={256} height={1} aria-hidden="true" />
        <div class="legend-ticks" aria-hidden="true">
          {legendTicks(scale).map((value) => (
            <span key={value} style={{ left: `${fraction(value, scale) * 100}%` }}>
              {tickLabel(value, scale)}
            </span>
          ))}
        </div>
      </div>
      {forbidden && (
        <span class="legend-forbidden">
          <i class="hatch" aria-hidden="true" /> not allowed
        </span>
      )}
    </figure>
  );
}
