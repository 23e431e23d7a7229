import { describe, expect, it } from "vitest";
import { effectiveKeys, entropy, largest, softmax, spread, withSink } from "../src/views/steps/softmax";

describe("softmax", () => {
  it("gives the worked example's weights", () => {
    const root = Math.SQRT2;
    expect(softmax([1 / root, 0, 1 / root]).map((w) => w.toFixed(4))).toEqual(["0.4011", "0.1978", "0.4011"]);
  });
  it("gives a masked key exactly nothing", () => {
    expect(softmax([2, -Infinity, 2])).toEqual([0.5, 0, 0.5]);
  });
  it("leaves a row that may see nothing at zero", () => {
    expect(softmax([-Infinity, -Infinity])).toEqual([0, 0]);
  });
  it("does not overflow", () => {
    expect(softmax([1000, 0])).toEqual([1, 0]);
  });
  it("evens out as the temperature rises and saturates as it falls", () => {
    const scores = [1, 0.5, -2];
    const [cold, plain, hot] = [0.1, 1, 10].map((t) => entropy(softmax(scores, t)));
    expect(cold).toBeLessThan(plain!);
    expect(plain).toBeLessThan(hot!);
  });
});

describe("spread", () => {
  it("counts even weights", () => {
    expect(effectiveKeys([0.25, 0.25, 0.25, 0.25])).toBeCloseTo(4);
  });
  it("names saturation, evenness, one key and no key", () => {
    expect(spread([0.995, 0.005])).toMatch(/^Saturated/);
    expect(spread([0.5, 0.5])).toMatch(/^Nearly even/);
    expect(spread([1, 0])).toMatch(/^Only one key/);
    expect(spread([0, 0])).toMatch(/nothing/);
    expect(spread([0.8, 0.1, 0.1])).toMatch(/1\.9 equally weighted/);
  });
});

describe("a sink", () => {
  it("keeps its share when weights do not add up to one", () => {
    const scores = withSink([1, 2], [0.2, 0.3]);
    expect(softmax(scores)[2]).toBeCloseTo(((0.3 / 0.3) * 0.5) / (Math.exp(-1) * 0.3 + 0.3 + 0.5), 6);
  });
  it("is not invented where they do", () => {
    expect(withSink([0, 0], [0.5, 0.5])).toEqual([0, 0]);
    expect(withSink([-Infinity], [0])).toEqual([-Infinity]);
  });
});

it("takes rows of a hundred thousand keys", () => {
  const weights = softmax(new Float32Array(131_072));
  expect(largest(weights)).toBeCloseTo(1 / 131_072);
});
