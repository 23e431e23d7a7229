/** Points of a long curve gathered so that a small chart shows its shape and not its noise. */

export interface Point {
  x: number;
  y: number;
}

/** Means over bins of equal width in log x; the first few x, being far apart there, stay alone. */
export function logBins(x: readonly number[], y: readonly number[], bins = 48): Point[] {
  const points = x.map((value, i) => ({ x: value, y: y[i] ?? NaN })).filter((p) => p.x > 0 && p.y > 0);
  const last = points.at(-1);
  if (!last || points.length <= bins) return points;
  const groups = new Map<number, Point[]>();
  for (const point of points) {
    const bin = Math.floor((Math.log(point.x) / Math.log(last.x)) * bins);
    const group = groups.get(bin);
    if (group) group.push(point);
    else groups.set(bin, [point]);
  }
  return [...groups.values()].map((group) => ({
    x: Math.exp(mean(group.map((p) => Math.log(p.x)))),
    y: mean(group.map((p) => p.y)),
  }));
}

/** Means over bins of equal width in x. */
export function evenBins(x: readonly number[], y: readonly number[], bins = 64): Point[] {
  const size = Math.max(1, Math.ceil(x.length / bins));
  return Array.from({ length: Math.ceil(x.length / size) }, (_, i) => {
    const part = [i * size, (i + 1) * size] as const;
    return { x: mean(x.slice(...part)), y: mean(y.slice(...part)) };
  });
}

/** The line A(d) = c · d^−γ through the middle of the points, at its two ends. */
export function powerLaw(points: readonly Point[], gamma: number): Point[] {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last || !Number.isFinite(gamma)) return [];
  const c = mean(points.map((p) => Math.log(p.y) + gamma * Math.log(p.x)));
  return [first, last].map(({ x }) => ({ x, y: Math.exp(c - gamma * Math.log(x)) }));
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
