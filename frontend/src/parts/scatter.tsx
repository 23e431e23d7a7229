/** A small scatter plot: two numbers per thing, one of them the newest. */

import { scaleLinear } from "d3-scale";
import { AxisX, AxisY, type Frame } from "./axes";
import "./charts.css";

export interface Dot {
  x: number;
  y: number;
  name: string;
}

export interface ScatterProps {
  title: string;
  xLabel: string;
  yLabel: string;
  dots: readonly Dot[];
  /** Which dot is the newest. */
  marked?: number;
  /** Two of a kind are compared: both axes alike, with the line on which they are equal. */
  diagonal?: boolean;
}

const FRAME: Frame = { width: 320, height: 220, left: 56, right: 14, top: 12, bottom: 36 };

export function Scatter({ title, xLabel, yLabel, dots, marked = -1, diagonal = false }: ScatterProps) {
  const low = diagonal ? Math.min(0, ...dots.flatMap((d) => [d.x, d.y])) : 0;
  const across = scaleLinear(
    [
      low,
      top(
        dots.map((d) => (diagonal ? Math.max(d.x, d.y) : d.x)),
        0.1,
      ),
    ],
    [FRAME.left, FRAME.width - FRAME.right],
  ).nice(4);
  const up = scaleLinear(
    [
      low,
      top(
        dots.map((d) => (diagonal ? Math.max(d.x, d.y) : d.y)),
        diagonal ? 0.1 : 0.02,
      ),
    ],
    [FRAME.height - FRAME.bottom, FRAME.top],
  ).nice(4);
  return (
    <figure class="chart-figure">
      <figcaption>{title}</figcaption>
      <svg
        class="chart"
        viewBox={`0 0 ${FRAME.width} ${FRAME.height}`}
        role="img"
        aria-label={`${title}: ${dots.length} points`}
      >
        <AxisX frame={FRAME} scale={across} label={xLabel} log={false} />
        <AxisY frame={FRAME} scale={up} label={yLabel} log={false} />
        {diagonal && <line class="chart-fit" x1={across(low)} y1={up(low)} x2={across.range()[1]} y2={up.range()[1]} />}
        {dots.map((dot, i) => (
          <circle
            key={i}
            class={i === marked ? "scatter-new" : "scatter-dot"}
            cx={across(dot.x)}
            cy={up(dot.y)}
            r={i === marked ? 6 : 4.5}
          >
            <title>{dot.name}</title>
          </circle>
        ))}
      </svg>
    </figure>
  );
}

function top(values: readonly number[], least: number): number {
  return Math.max(least, ...values);
}
