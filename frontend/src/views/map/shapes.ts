/** What is drawn over the map, as data: painted on a canvas while looking, printed as SVG when exported. */

export type Shape =
  | { kind: "line"; points: [number, number][]; colour: string; width: number; dash?: Dash; halo?: string }
  | {
      kind: "rect";
      x: number;
      y: number;
      width: number;
      height: number;
      colour: string;
      line: number;
      fill?: string;
      halo?: string;
    };

const round = (value: number): string => String(Math.round(value * 100) / 100);

/** Lengths of strokes and gaps, and how far into them the line begins. */
export interface Dash {
  steps: number[];
  phase: number;
}

/** The part of a segment that is near the screen, dashed as the whole would be; null where nothing is.
 *  At one cell a finger's breadth the diagonal of a long map is kilometres long, and a browser dashes all of it. */
export function dashed(
  [x1, y1]: readonly [number, number],
  [x2, y2]: readonly [number, number],
  size: { width: number; height: number },
  steps: number[],
): { points: [number, number][]; dash: Dash } | null {
  const air = 8;
  const [dx, dy] = [x2 - x1, y2 - y1];
  let [from, to] = [0, 1];
  for (const [run, start, most] of [
    [dx, x1, size.width],
    [dy, y1, size.height],
  ] as const) {
    const [a, b] = [(-air - start) / run, (most + air - start) / run];
    if (run === 0) {
      if (start < -air || start > most + air) return null;
    } else {
      from = Math.max(from, Math.min(a, b));
      to = Math.min(to, Math.max(a, b));
    }
  }
  if (from >= to) return null;
  const period = steps.reduce((sum, step) => sum + step, 0);
  return {
    points: [
      [x1 + from * dx, y1 + from * dy],
      [x1 + to * dx, y1 + to * dy],
    ],
    dash: { steps, phase: (from * Math.hypot(dx, dy)) % period },
  };
}

export function paintShapes(context: CanvasRenderingContext2D, shapes: readonly Shape[]): void {
  for (const shape of shapes) {
    if (shape.kind === "line") paintLine(context, shape);
    else paintRect(context, shape);
  }
}

function paintLine(context: CanvasRenderingContext2D, shape: Extract<Shape, { kind: "line" }>): void {
  const path = new Path2D();
  shape.points.forEach(([x, y], i) => {
    if (i === 0) path.moveTo(x, y);
    else path.lineTo(x, y);
  });
  context.setLineDash(shape.dash?.steps ?? []);
  context.lineDashOffset = shape.dash?.phase ?? 0;
  if (shape.halo) stroke(context, path, shape.halo, shape.width + 2);
  stroke(context, path, shape.colour, shape.width);
  context.setLineDash([]);
}

function stroke(context: CanvasRenderingContext2D, path: Path2D, colour: string, width: number): void {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke(path);
}

function paintRect(context: CanvasRenderingContext2D, shape: Extract<Shape, { kind: "rect" }>): void {
  const path = new Path2D();
  path.rect(shape.x, shape.y, shape.width, shape.height);
  if (shape.fill) {
    context.fillStyle = shape.fill;
    context.fill(path);
  }
  if (shape.halo) stroke(context, path, shape.halo, shape.line + 2);
  if (shape.line > 0) stroke(context, path, shape.colour, shape.line);
}

export function printShapes(shapes: readonly Shape[]): string {
  return shapes.map((shape) => (shape.kind === "line" ? printLine(shape) : printRect(shape))).join("\n");
}

function printLine(shape: Extract<Shape, { kind: "line" }>): string {
  const points = shape.points.map(([x, y]) => `${round(x)},${round(y)}`).join(" ");
  const dash = shape.dash
    ? ` stroke-dasharray="${shape.dash.steps.join(" ")}" stroke-dashoffset="${round(shape.dash.phase)}"`
    : "";
  const one = (colour: string, width: number): string =>
    `<polyline points="${points}" fill="none" stroke="${colour}" stroke-width="${width}"${dash}/>`;
  return (shape.halo ? one(shape.halo, shape.width + 2) : "") + one(shape.colour, shape.width);
}

function printRect(shape: Extract<Shape, { kind: "rect" }>): string {
  const place = `x="${round(shape.x)}" y="${round(shape.y)}" width="${round(shape.width)}" height="${round(shape.height)}"`;
  const halo = shape.halo ? `<rect ${place} fill="none" stroke="${shape.halo}" stroke-width="${shape.line + 2}"/>` : "";
  return `${halo}<rect ${place} fill="${shape.fill ?? "none"}" stroke="${shape.colour}" stroke-width="${shape.line}"/>`;
}
