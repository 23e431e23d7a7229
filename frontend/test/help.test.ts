import { expect, it } from "vitest";
import type { ColourScale } from "../src/parts/colour";
import type { MaskShape } from "../src/views/map/geometry";
import { numbersOn, ROOM } from "../src/views/map/numbers";

const scale: ColourScale = { palette: "viridis", scale: "linear", low: 0, high: 1 };
const mask: MaskShape = { queries: 100, keys: 100, causal: true, window: null };
const size = { width: 200, height: 100 };
const half = (): number => 0.5;

it("writes numbers into cells that may attend and are on screen, once they are large enough", () => {
  const camera = { x: 50, y: 50, scale: ROOM };
  const written = numbersOn(camera, size, mask, scale, half);
  // Queries 48 to 51, keys 47 to 52, of which later keys are hidden.
  expect(written).toHaveLength(2 + 3 + 4 + 5);
  expect(written[0]).toMatchObject({ text: "0.5000", x: 100 - 2.5 * ROOM, y: 50 - 1.5 * ROOM });
  expect(numbersOn({ ...camera, scale: ROOM - 1 }, size, mask, scale, half)).toEqual([]);
});

it("leaves cells empty whose tile has not come", () => {
  expect(numbersOn({ x: 50, y: 50, scale: 60 }, size, mask, scale, () => null)).toEqual([]);
});

it("stays on the map at its corner, and picks an ink that reads", () => {
  const written = numbersOn({ x: 0, y: 0, scale: 60 }, size, mask, scale, (q, k) => (q === k ? 1 : 0));
  expect(written.map(({ text }) => text)).toEqual(["1.0000"]);
  expect(written[0]?.ink).toBe("#000");
});
