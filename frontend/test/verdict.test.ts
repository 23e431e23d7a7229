import { describe, expect, it } from "vitest";
import { firstGuess, number, pairs, verdict } from "../src/views/matter/verdict";

describe("verdict", () => {
  it("says when a large weight did not matter", () => {
    expect(verdict({ what: "this edge", weight: 0.63, kl: 0.002 })).toBe(
      "Cutting this edge (weight 0.63) changed the next-token distribution by KL 0.002 nats: " +
        "the weight was large and it did not matter.",
    );
  });
  it("says when a small weight did", () => {
    expect(verdict({ what: "this edge", weight: 0.01, kl: 0.7 })).toMatch(/small and it mattered all the same\.$/);
  });
  it("speaks of a head without a weight", () => {
    expect(verdict({ what: "this head", weight: null, kl: 1.25 })).toBe(
      "Cutting this head changed the next-token distribution by KL 1.3 nats: this prediction leaned on it.",
    );
  });
  it("does not pretend to more digits than matter", () => {
    expect([0, 1e-7, 0.0023, 0.0501, 0.634].map(number)).toEqual(["0", "below 0.0005", "0.002", "0.05", "0.63"]);
  });
});

describe("pairs", () => {
  const before = [
    { token: "a", probability: 0.6 },
    { token: "b", probability: 0.3 },
  ];
  const after = [
    { token: "c", probability: 0.5 },
    { token: "a", probability: 0.4 },
  ];
  it("joins both lists, heaviest first, and leaves unknown what a list does not hold", () => {
    expect(pairs(before, after)).toEqual([
      { token: "a", before: 0.6, after: 0.4 },
      { token: "c", before: null, after: 0.5 },
      { token: "b", before: 0.3, after: null },
    ]);
  });
  it("keeps to the most it may show", () => {
    expect(pairs(before, after, 1)).toHaveLength(1);
  });
  it("notices a new first guess", () => {
    expect(firstGuess(before, after)).toBe("The first guess changed.");
    expect(firstGuess(before, before)).toBe("The first guess stayed the same.");
    expect(firstGuess(before, after.toReversed())).toBe("The first guess changed.");
    expect(firstGuess([], after)).toBe("");
  });
  it("keeps tokens apart that read the same", () => {
    const twins = [
      { token: "a", id: 1, probability: 0.6 },
      { token: "a", id: 2, probability: 0.3 },
    ];
    expect(pairs(twins, twins)).toHaveLength(2);
  });
});
