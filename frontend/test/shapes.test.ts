import { describe, expect, it } from "vitest";

import { overlayShapes } from "../src/views/map/overlay";
import { dashed, printShapes } from "../src/views/map/shapes";

const size = { width: 800, height: 600 };

describe("a dashed line", () => {
  it("is left whole where it is on the screen", () => {
    expect(dashed([10, 20], [700, 500], size, [2, 3])).toEqual({
      points: [
        [10, 20],
        [700, 500],
      ],
      dash: { steps: [2, 3], phase: 0 },
    });
  });

  it("of a map two million pixels wide is cut to the screen and keeps its direction", () => {
    const cut = dashed([-1_000_000, -1_000_100], [1_000_000, 999_900], size, [2, 3])!;
    const [[x1, y1], [x2, y2]] = cut.points as [[number, number], [number, number]];
    expect(Math.hypot(x2 - x1, y2 - y1)).toBeLessThan(1100);
    expect(y1 - x1).toBeCloseTo(-100, 6);
    expect(y2 - x2).toBeCloseTo(-100, 6);
  });

  it("keeps its dashes where they were when it is cut", () => {
    const { points, dash } = dashed([-1003, 5], [9000, 5], size, [6, 4])!;
    expect((points[0]![0] - -1003 - dash.phase) % 10).toBeCloseTo(0, 6);
  });

  it.each([
    [
      [-50, 5],
      [-20, 900],
    ],
    [
      [5, -50],
      [900, -20],
    ],
    [
      [-500, 100],
      [100, -500],
    ],
    [
      [-20, -20],
      [-20, 900],
    ],
  ] as const)("that passes beside the screen is not drawn", (from, to) => {
    expect(dashed(from, to, size, [2, 3])).toBeNull();
  });
});

it("no line over a long map, close up, reaches far beyond the screen", () => {
  const ink = "#000";
  const inks = {
    ink,
    soft: ink,
    line: ink,
    query: ink,
    key: ink,
    accent: ink,
    hatch: ink,
    hatchGround: ink,
    surface: ink,
    sunken: ink,
  };
  const n = 131_072;
  const shapes = overlayShapes(
    {
      camera: { x: n / 2, y: n / 2, scale: 20 },
      size,
      mask: { queries: n, keys: n, causal: true, window: 11 },
      documents: [0, n / 2 + 3, n - 1],
      overlays: { window: true, sink: false, documents: true },
      hover: null,
      pinned: null,
      box: null,
      marks: [],
    },
    inks,
  );
  expect(shapes).toHaveLength(4); // two edges of the window, and two lines of the one document on screen
  for (const shape of shapes) {
    if (shape.kind !== "line") continue;
    for (const [x, y] of shape.points) {
      expect(Math.abs(x - size.width / 2)).toBeLessThan(size.width);
      expect(Math.abs(y - size.height / 2)).toBeLessThan(size.height);
    }
  }
  expect(printShapes(shapes)).toContain("stroke-dashoffset");
});
