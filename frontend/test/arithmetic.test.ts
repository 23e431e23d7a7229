import { describe, expect, it } from "vitest";
import { figure } from "../src/parts/grid";
import { products, scaling, share } from "../src/views/steps/arithmetic";

describe("arithmetic", () => {
  it("writes a dot product as a sum", () => {
    expect(products([1, 0], [1, -1], 1)).toBe("1.00 × 1.00 + 0.00 × (−1.00) = 1.000");
  });
  it("shows the largest terms of a long sum, and the rest as one number", () => {
    expect(products([1, 9, 1, -8, 7, 1, 6], [1, 1, 1, 1, 1, 1, 1], 20, 32)).toBe(
      "9.00 × 1.00 + (−8.00) × 1.00 + 7.00 × 1.00 + 6.00 × 1.00 + (28 more: 6.00) = 20.000",
    );
  });
  it("prints digits enough for what is printed to add up", () => {
    expect(products([0.40111, 0.19778, 0.40111], [10, 0, 5], 6.01665)).toBe(
      "0.40111 × 10.00000 + 0.19778 × 0.00000 + 0.40111 × 5.00000 ≈ 6.017",
    );
  });
  it("divides by the root where that is the scale and multiplies where not", () => {
    expect(scaling(2, 1, 4, 0.5)).toBe("2.000 / √4 = 1.000");
    expect(scaling(57.836, 57.836 / Math.sqrt(32), 32, 1 / Math.sqrt(32))).toBe("57.836 / √32 ≈ 10.224");
    expect(scaling(2, 0.2, 4, 0.1)).toBe("2.000 × 0.1000 = 0.200");
  });
  it("works out one weight", () => {
    expect(share(0, 0.5, 0)).toBe("e^0.00 / (sum over all keys) ≈ 1.000 / 2.000 ≈ 0.500");
    expect(share(100, 0.5, 100)).toMatch(/^e\^0\.00 .* subtracted first$/);
    expect(share(-Infinity, 0, 1)).toMatch(/exactly 0$/);
  });
});

describe("figure", () => {
  it("uses a true minus sign, and none for a rounded zero", () => {
    expect([-1.234, -0.001, 0, 1234.5, 123.45, -Infinity, NaN].map((v) => figure(v))).toEqual([
      "−1.23",
      "0.00",
      "0.00",
      "1235",
      "123.5",
      "−∞",
      "–",
    ]);
  });
});
