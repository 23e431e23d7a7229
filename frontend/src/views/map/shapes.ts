/** What is drawn over the map, as data: painted on a canvas while looking, printed as SVG when exported. */

export type Shape =
  | { kind: "line"; points: [number, number][]; colour: string; width: number; dash?: number[]; halo?: string }
  | { kind: "rect"; x: number; y: number; width: number; height: number; colour: string; line: number; fill?: string; halo?: string };

export function paintShapes(context: CanvasRenderingContext2D, shapes: readonly Shape[]): void {
  for (const shape of shapes) {
    if (shape.kind === "line") paintLine(context, shape);
    else paintRect(context, shape);
  }
}

function paintLine(context: CanvasRenderingContext2D, shape: Extract<Shape, { kind: "line" }>): void {
  const path = new Path2D();
  shape.points.forEach(([x, y], i) => (i === 0 ? path.moveTo(x, y) : path.lineTo(x, y)));
  context.setLineDash(shape.dash ?? []);
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

const round = (value: number): string => String(Math.round(value * 100) / 100);

export function printShapes(shapes: readonly Shape[]): string {
  return shapes.map((shape) => (shape.kind === "line" ? printLine(shape) : printRect(shape))).join("\n");
}

function printLine(shape: Extract<Shape, { kind: "line" }>): string {
  const points = shape.points.map(([x, y]) => `${round(x)},${round(y)}`).join(" ");
  const dash = shape.dash ? ` stroke-dasharray="${shape.dash.join(" ")}"` : "";
  const one = (colour: string, width: number): string =>
    `<polyline points="${points}" fill="none" stroke="${colour}" stroke-width="${width}"${dash}/>`;
  return (shape.halo ? one(shape.halo, shape.width + 2) : "") + one(shape.colour, shape.width);
}

function printRect(shape: Extract<Shape, { kind: "rect" }>): string {
  const place = `x="${round(shape.x)}" y="${round(shape.y)}" width="${round(shape.width)}" height="${round(shape.height)}"`;
  const halo = shape.halo ? `<rect ${place} fill="none" stroke="${shape.halo}" stroke-width="${shape.line + 2}"/>` : "";
  return `${halo}<rect ${place} fill="${shape.fill ?? "none"}" stroke="${shape.colour}" stroke-width="${shape.line}"/>`;
}
