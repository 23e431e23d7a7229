/** Axes for small charts, drawn by the page itself so that they follow its colours and fonts. */

export interface Frame {
  width: number;
  height: number;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** What an axis needs of a d3 scale. */
export interface Scale {
  (value: number): number;
  ticks(count?: number): number[];
  domain(): number[];
}

interface AxisProps {
  frame: Frame;
  scale: Scale;
  label: string;
  log: boolean;
}

export function AxisX({ frame, scale, label, log }: AxisProps) {
  const floor = frame.height - frame.bottom;
  return (
    <g class="chart-axis" aria-hidden="true">
      <line x1={frame.left} x2={frame.width - frame.right} y1={floor} y2={floor} />
      {ticks(scale, log, 5).map((value) => (
        <g key={value} transform={`translate(${scale(value)},${floor})`}>
          <line y2={4} />
          <text y={15} text-anchor="middle">
            {tick(value)}
          </text>
        </g>
      ))}
      <text
        class="chart-label"
        x={(frame.left + frame.width - frame.right) / 2}
        y={frame.height - 4}
        text-anchor="middle"
      >
        {label}
      </text>
    </g>
  );
}

export function AxisY({ frame, scale, label, log }: AxisProps) {
  const right = frame.width - frame.right;
  return (
    <g class="chart-axis" aria-hidden="true">
      {ticks(scale, log, 4).map((value) => (
        <g key={value} transform={`translate(0,${scale(value)})`}>
          <line class="chart-rule" x1={frame.left} x2={right} />
          <text x={frame.left - 6} dy="0.32em" text-anchor="end">
            {tick(value)}
          </text>
        </g>
      ))}
      <text
        class="chart-label"
        transform={`translate(11,${(frame.top + frame.height - frame.bottom) / 2}) rotate(-90)`}
        text-anchor="middle"
      >
        {label}
      </text>
    </g>
  );
}

/** Round values along a scale; on a log axis powers of ten, thinned so that labels do not touch. */
export function ticks(scale: Scale, log: boolean, most: number): number[] {
  if (!log) return scale.ticks(most);
  const ends = scale.domain();
  const [low, high] = [Math.ceil(Math.log10(ends[0]!) - 1e-9), Math.floor(Math.log10(ends.at(-1)!) + 1e-9)];
  if (high - low < 1) return scale.ticks(3);
  const step = Math.max(1, Math.ceil((high - low) / most));
  return Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, i) => 10 ** (low + i * step));
}

/** A tick's label: 0.01, 250, 10k, 10⁻⁵. */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-3) {
    const power = Math.floor(Math.log10(size) + 1e-9);
    const lead = Number((value / 10 ** power).toPrecision(2));
    return `${lead === 1 ? "" : `${lead}·`}10${raised(power)}`;
  }
  if (size >= 1000) return `${Number((value / 1000).toPrecision(3))}k`;
  return String(Number(value.toPrecision(3)));
}

function raised(power: number): string {
  return String(power).replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)]!));
}
