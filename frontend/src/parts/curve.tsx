/** A small line chart with axes, for curves a reader takes in at a glance. */

import { scaleLinear, scaleLog } from "d3-scale";
import { line as path } from "d3-shape";
import { AxisX, AxisY, type Frame } from "./axes";
import type { Point } from "./bins";
import "./charts.css";

export interface Axis {
  label: string;
  log?: boolean;
  /** Fixed ends; those of the points where not given. */
  domain?: [number, number];
}

export interface CurveProps {
  title: string;
  x: Axis;
  y: Axis;
  points: readonly Point[];
  /** A second, dashed line, such as a fit. */
  fit?: readonly Point[];
  fitLabel?: string;
  /** Said where there are no points. */
  empty?: string;
}

const FRAME: Frame = { width: 320, height: 190, left: 56, right: 16, top: 10, bottom: 36 };

export function Curve({ title, x, y, points, fit = [], fitLabel, empty = "No data" }: CurveProps) {
  const shown = points.filter((p) => (!x.log || p.x > 0) && (!y.log || p.y > 0));
  if (shown.length === 0)
    return (
      <Titled title={title}>
        <p class="chart-empty">{empty}</p>
      </Titled>
    );
  const across = scale(
    x,
    shown.map((p) => p.x),
    [FRAME.left, FRAME.width - FRAME.right],
  );
  const up = scale(
    y,
    [...shown, ...fit].map((p) => p.y),
    [FRAME.height - FRAME.bottom, FRAME.top],
  ).nice();
  const draw = path<Point>(
    (p) => across(p.x),
    (p) => up(p.y),
  );
  return (
    <Titled title={title} note={fitLabel}>
      <svg
        class="chart"
        viewBox={`0 0 ${FRAME.width} ${FRAME.height}`}
        role="img"
        aria-label={summary(title, x, y, shown)}
      >
        <AxisX frame={FRAME} scale={across} label={x.label} log={x.log ?? false} />
        <AxisY frame={FRAME} scale={up} label={y.label} log={y.log ?? false} />
        <path class="chart-line" d={draw([...shown]) ?? ""} />
        {shown.length <= 64 &&
          shown.map((p) => <circle key={p.x} class="chart-dot" cx={across(p.x)} cy={up(p.y)} r={1.8} />)}
        {fit.length > 1 && <path class="chart-fit" d={draw([...fit]) ?? ""} />}
      </svg>
    </Titled>
  );
}

function Titled({
  title,
  note,
  children,
}: {
  title: string;
  note?: string | undefined;
  children: preact.ComponentChildren;
}) {
  return (
    <figure class="chart-figure">
      <figcaption>
        <span>{title}</span>
        {note && <span class="chart-note">{note}</span>}
      </figcaption>
      {children}
    </figure>
  );
}

function scale(axis: Axis, values: number[], range: [number, number]) {
  const [low, high] = axis.domain ?? padded(Math.min(...values), Math.max(...values), axis.log ?? false);
  return axis.log ? scaleLog([low, high], range) : scaleLinear([low, high], range);
}

/** A flat curve still needs an axis with some length. */
function padded(low: number, high: number, log: boolean): [number, number] {
  if (log) return low === high ? [low / 2, high * 2] : [low, high];
  return [Math.min(0, low), high === 0 && low === 0 ? 1 : high];
}

function summary(title: string, x: Axis, y: Axis, points: readonly Point[]): string {
  const [first, last] = [points[0]!, points.at(-1)!];
  const at = (p: Point) => `${p.y.toPrecision(2)} at ${x.label} ${Number(p.x.toPrecision(3))}`;
  return `${title}: ${y.label} goes from ${at(first)} to ${at(last)}.`;
}
