import { describe, expect, it } from "vitest";
import { figure } from "../src/parts/grid";

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
