import { scaleLinear, scaleLog } from "d3-scale";
import { describe, expect, it } from "vitest";
import { tick, ticks } from "../src/parts/axes";

describe("tick", () => {
  it("writes short numbers", () => {
    expect([0, 0.01, 0.25, 12, 250, 10_000, 131_072].map(tick)).toEqual([
      "0",
      "0.01",
      "0.25",
      "12",
      "250",
      "10k",
      "131k",
    ]);
  });
  it("raises ten to a power where zeros would not fit", () => {
    expect([1e-5, 2e-4, 1e6].map(tick)).toEqual(["10⁻⁵", "2·10⁻⁴", "10⁶"]);
  });
});

describe("ticks", () => {
  it("puts powers of ten on a log axis and thins them", () => {
    expect(ticks(scaleLog([1, 1000], [0, 1]), true, 5)).toEqual([1, 10, 100, 1000]);
    expect(ticks(scaleLog([1e-8, 1], [0, 1]), true, 4)).toHaveLength(5);
  });
  it("finds some tick on a log axis shorter than a decade", () => {
    expect(ticks(scaleLog([2, 8], [0, 1]), true, 4).length).toBeGreaterThan(0);
  });
  it("leaves a plain axis to d3", () => {
    expect(ticks(scaleLinear([0, 1], [0, 1]), false, 2)).toEqual([0, 0.5, 1]);
  });
});
