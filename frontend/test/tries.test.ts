import { expect, it } from "vitest";
import { named, request, short, type Target } from "../src/views/matter/tries";

const target: Target = { mode: "edge", layer: 3, head: 1, query: 40, key: 7, at: 40 };

it("asks to block exactly what was pointed at", () => {
  expect(request(target)).toEqual({ edges: [{ layer: 3, head: 1, query: 40, key: 7 }], at: 40 });
  expect(request({ ...target, mode: "token" })).toEqual({ keys: [7], at: 40 });
  expect(request({ ...target, mode: "head" })).toEqual({ heads: [[3, 1]], at: 40 });
});

it("names what was blocked", () => {
  expect(named(target)).toBe("the edge 40 → 7 in layer 3, head 1");
  expect(named({ ...target, mode: "token" })).toBe("token 7 in every head");
  expect(short({ ...target, mode: "head" })).toBe("L3 H1");
});
