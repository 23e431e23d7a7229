import { expect, it } from "vitest";

import { TokenTable } from "../src/parts/tokens";
import { axisMarks } from "../src/views/map/axes";
import { numbersOn } from "../src/views/map/numbers";

const tokens = new TokenTable({ text: "", ids: [], starts: [], stops: [], pieces: [] });

it.each([
  [38_000, 8],
  [38_000, 0.5],
  [3_000_000, 2],
  [0, 0.001],
])("no two positions of an axis from %i at %f pixels a token read the same", (from, scale) => {
  const range = { from, to: from + 600 / scale, count: 4_000_000, scale };
  const texts = axisMarks(range, tokens, [], 40).map(({ text }) => text);
  expect(texts.length).toBeGreaterThan(3);
  expect(new Set(texts).size).toBe(texts.length);
});

it("numbers in cells are short enough for their cells", () => {
  const camera = { x: 1, y: 1, scale: 60 };
  const mask = { queries: 2, keys: 2, causal: false, window: null };
  const colours = { palette: "viridis", scale: "log", low: 1e-6, high: 1 } as never;
  const weights = [0.70641, 3.216e-5, 0, 0.001];
  const written = numbersOn(camera, { width: 200, height: 200 }, mask, colours, (q, k) => weights[2 * q + k]!);
  expect(written.map(({ text }) => text)).toEqual(["0.7064", "3·10⁻⁵", "0", "0.0010"]);
});
