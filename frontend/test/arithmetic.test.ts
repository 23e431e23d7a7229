import { describe, expect, it } from "vitest";
import { figure } from "../src/parts/grid";
import { products, scaling, share } from "../src/views/steps/arithmetic";

describe("arithmetic", () => {
  it("writes a dot product as a sum", () => {
    expect(products([1, 0], [1, -1], 1)).toBe("1.00 × 1.00 + 0.00 × (−1.00) = 1.000");
  });
  it("leaves out the middle of a long sum and says how much", () => {
    expect(products([1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], 32, 32)).toMatch(/\+ … 28 more = 32\.000$/);
  });
  it("divides by the root where that is the scale and multiplies where not", () => {
    expect(scaling(2, 1, 4, 0.5)).toBe("2.000 / √4 = 2.000 / 2.00 = 1.000");
    expect(scaling(2, 0.2, 4, 0.1)).toBe("2.000 × 0.1000 = 0.200");
  });
  it("works out one weight", () => {
    expect(share(0, 0.5, 0)).toBe("e^0.00 / (sum over all keys) = 1.000 / 2.000 = 0.500");
    expect(share(100, 0.5, 100)).toMatch(/^e\^0\.00 .* subtracted first$/);
    expect(share(-Infinity, 0, 1)).toMatch(/exactly 0$/);
  });
});

describe("figure", () => {
  it("uses a true minus sign, and none for a rounded zero", () => {
    expect([-1.234, -0.001, 0, 1234.5, 123.45, -Infinity, NaN].map((v) => figure(v))).toEqual(
      ["−1.23", "0.00", "0.00", "1235", "123.5", "−∞", "–"],
    );
  });
});
