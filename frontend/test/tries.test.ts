import { expect, it } from "vitest";
import { named, request, short, type Target } from "../src/views/matter/tries";

const target: Target = {
  mode: "edge",
  layer: 3,
  head: 1,
  query: 40,
  key: 7,
  at: 40,
  cuts: [
    { kind: "head", layer: 3, head: 1 },
    { kind: "token", key: [7, 8] },
  ],
  instead: "zero",
};

it("asks to block exactly what was pointed at", () => {
  expect(request(target)).toEqual({ edges: [{ layer: 3, head: 1, query: 40, key: 7 }], at: 40 });
  expect(request({ ...target, mode: "token" })).toEqual({ keys: [7], at: 40 });
  expect(request({ ...target, mode: "head" })).toEqual({ heads: [[3, 1]], at: 40 });
  expect(request({ ...target, mode: "several" })).toEqual({ heads: [[3, 1]], edges: [], keys: [7, 8], at: 40 });
  expect(request({ ...target, mode: "head", instead: "mean" })).toEqual({ heads: [[3, 1]], at: 40, instead: "mean" });
  expect(request({ ...target, mode: "token", instead: "mean" })).toEqual({ keys: [7], at: 40 });
});

it("names what was blocked", () => {
  expect(named(target)).toBe("the edge 40 → 7 in layer 3, head 1");
  expect(named({ ...target, mode: "token" })).toBe("token 7 in every head");
  expect(named({ ...target, mode: "several" })).toBe("L3 H1 and tokens 7–8");
  expect(named({ ...target, mode: "head", instead: "mean" })).toBe("layer 3, head 1 (replaced by its mean so far)");
  expect(short({ ...target, mode: "head" })).toBe("L3 H1");
  expect(short(target, String, () => "cat")).toBe("L3 H1: “40” 40 → “cat” 7");
});
