import { describe, expect, it } from "vitest";
import { evenBins, logBins, powerLaw } from "../src/parts/bins";

const distance = Array.from({ length: 1000 }, (_, i) => i + 1);
const decay = distance.map((d) => 0.3 * d ** -0.8);

describe("logBins", () => {
  it("keeps a short curve as it is", () => {
    expect(logBins([1, 2, 3], [0.5, 0.2, 0.1])).toEqual([
      { x: 1, y: 0.5 },
      { x: 2, y: 0.2 },
      { x: 3, y: 0.1 },
    ]);
  });
  it("leaves out what has no place on a log axis", () => {
    expect(logBins([0, 1, 2], [0.9, 0.5, 0])).toEqual([{ x: 1, y: 0.5 }]);
  });
  it("shortens a long curve and keeps its slope", () => {
    const bins = logBins(distance, decay);
    expect(bins.length).toBeLessThan(50);
    const [a, b] = [bins[0]!, bins.at(-1)!];
    expect(Math.log(a.y / b.y) / Math.log(b.x / a.x)).toBeCloseTo(0.8, 2);
  });
  it("has nothing to say about nothing", () => {
    expect(logBins([], [])).toEqual([]);
    expect(powerLaw([], 1)).toEqual([]);
  });
});

describe("evenBins", () => {
  it("keeps the mean and the number of bins", () => {
    expect(evenBins([0, 1, 2, 3, 4], [1, 3, 5, 7, 9], 3)).toEqual([
      { x: 0.5, y: 2 },
      { x: 2.5, y: 6 },
      { x: 4, y: 9 },
    ]);
    expect(evenBins(distance, decay)).toHaveLength(63);
    expect(evenBins([], [])).toEqual([]);
  });
});

describe("powerLaw", () => {
  it("goes through points that follow it", () => {
    const line = powerLaw(logBins(distance, decay), 0.8);
    expect(line[0]!.y).toBeCloseTo(0.3, 2);
  });
});
