import { describe, expect, it } from "vitest";
import type { Steps } from "../src/source/source";
import { readWalk } from "../src/views/steps/read";
import { gapBefore, left, pick, stepsOf } from "../src/views/steps/walk";
import { words } from "../src/views/steps/words";

const part = (
  name: string,
  rows: string[],
  columns: string[],
  data: (number | null)[][],
  shape = [rows.length, columns.length],
) => ({ name, rows, columns, data, shape, worked: rows.map((row) => columns.map((at) => `${name} of ${row}, ${at}`)) });
const step = (name: string, ...parts: ReturnType<typeof part>[]) => ({
  name,
  title: "",
  formula: "",
  sentence: "",
  parts,
});

/** Two tokens, causal, as a worked example comes. */
const worked: Steps = {
  query: 1,
  token: "cat",
  keys: [0, 1],
  tokens: ["The", "cat"],
  visible: 2,
  dim: 2,
  head: 0,
  more: 0,
  temperature: 1,
  scaled: true,
  entropy: 1,
  scale: Math.SQRT1_2,
  next: [],
  steps: [
    step("input", part("input", ["The", "cat"], ["0"], [[1], [2]])),
    step(
      "q",
      part(
        "q",
        ["The", "cat"],
        ["0", "1"],
        [
          [1, 0],
          [0, 1],
        ],
      ),
    ),
    step(
      "k",
      part(
        "k",
        ["The", "cat"],
        ["0", "1"],
        [
          [1, 0],
          [0, 1],
        ],
      ),
    ),
    step(
      "v",
      part(
        "v",
        ["The", "cat"],
        ["0", "1"],
        [
          [5, 0],
          [0, 5],
        ],
      ),
    ),
    step(
      "scores",
      part(
        "scores",
        ["The", "cat"],
        ["The", "cat"],
        [
          [1, 0],
          [0, 1],
        ],
      ),
    ),
    step(
      "scaled",
      part(
        "scaled",
        ["The", "cat"],
        ["The", "cat"],
        [
          [0.7, 0],
          [0, 0.7],
        ],
      ),
    ),
    step(
      "masked",
      part(
        "masked",
        ["The", "cat"],
        ["The", "cat"],
        [
          [0.7, null],
          [0, 0.7],
        ],
      ),
    ),
    step(
      "weights",
      part(
        "weights",
        ["The", "cat"],
        ["The", "cat"],
        [
          [1, 0],
          [0.33, 0.67],
        ],
      ),
    ),
    step(
      "output",
      part(
        "output",
        ["The", "cat"],
        ["0", "1"],
        [
          [5, 0],
          [1.65, 3.35],
        ],
      ),
    ),
  ],
};

/** One query of a model's head: keys 0, 7, 8 are seen and 9 is not. */
const real: Steps = {
  query: 8,
  token: "on",
  keys: [0, 7, 8, 9],
  tokens: ["Once", "up", "on", "a"],
  visible: 9,
  dim: 32,
  head: 0,
  more: 0,
  temperature: 1,
  scaled: true,
  entropy: 1,
  scale: 0.25,
  next: [{ token: " a", id: 1, probability: 0.9 }],
  steps: [
    step("tokens"),
    step(
      "projections",
      part("q", ["on"], ["0"], [[1]], [1, 32]),
      part("k", ["Once", "up", "on", "a"], ["0"], [[1], [2], [3], [4]], [4, 32]),
      part("v", ["Once", "up", "on", "a"], ["0"], [[1], [2], [3], [4]], [4, 16]),
    ),
    step("scores", part("scores", ["on"], [], [[4, 0, 2, 1]])),
    step("scaled", part("scaled", ["on"], [], [[1, 0, 0.5, 0.25]])),
    step("masked", part("masked", ["on"], [], [[1, 0, 0.5, null]])),
    step("weights", part("weights", ["on"], [], [[0.5, 0.2, 0.25, 0]])),
    step("mix", part("values", [], [], []), part("output", ["on"], ["0"], [[1.5]])),
    step(
      "parallel",
      part(
        "weights",
        ["up", "on"],
        ["Once", "up", "on", "a"],
        [
          [0.9, 0.1, 0, 0],
          [0.5, 0.2, 0.25, 0],
        ],
      ),
    ),
    step(
      "heads",
      part(
        "heads",
        ["head 0", "head 1"],
        ["length", "share"],
        [
          [2, 0.5],
          [2, 0.5],
        ],
      ),
    ),
  ],
};

describe("readWalk", () => {
  it("follows the last query of a worked example, or the one asked for", () => {
    expect(readWalk(worked)).toMatchObject({
      query: "cat",
      self: 1,
      weights: [0.33, 0.67],
      output: [1.65, 3.35],
      parallelRow: 1,
    });
    expect(readWalk(worked).worked.scaled).toEqual(["scaled of cat, The", "scaled of cat, cat"]);
    expect(readWalk(worked, 0).worked.weights).toEqual(["weights of The, The", "weights of The, cat"]);
    expect(readWalk(worked, 0)).toMatchObject({
      query: "The",
      self: 0,
      visible: 1,
      q: [1, 0],
      weights: [1, 0],
      masked: [0.7, -Infinity],
    });
  });
  it("reads a model's head", () => {
    const walk = readWalk(real);
    expect(walk).toMatchObject({
      query: "on",
      queries: [],
      self: 2,
      dim: 32,
      valueDim: 16,
      scale: 0.25,
      q: [1],
      heads: [2, 2],
      parallelRow: 1,
    });
    expect(walk.keys.map((key) => key.allowed)).toEqual([true, true, true, false]);
  });
  it("leaves out steps that have nothing to show", () => {
    expect(stepsOf(readWalk(worked))).toEqual([
      "tokens",
      "projections",
      "scores",
      "scaled",
      "masked",
      "weights",
      "mix",
      "parallel",
    ]);
    expect(stepsOf(readWalk(real)).slice(-2)).toEqual(["heads", "next"]);
    const plain = { ...worked, steps: worked.steps.filter((one) => one.name !== "masked") };
    expect(stepsOf(readWalk(plain))).not.toContain("masked");
    expect(readWalk(plain).masked).toEqual([0, 0.7]);
  });
});

describe("pick", () => {
  it("keeps the query and its neighbour, then the heaviest, then what is forbidden", () => {
    expect(pick(readWalk(real), 2)).toEqual([1, 2, 3]);
    expect(pick(readWalk(real), 9)).toEqual([0, 1, 2, 3]);
    expect(pick(readWalk(real), 3, 0)).toEqual([0, 1, 2]);
  });
  it("counts what it leaves out, and the text between rows", () => {
    const walk = readWalk(real);
    expect(left(walk, pick(walk, 9))).toBe(6);
    expect(gapBefore(walk, [0, 1, 2], 1)).toBe(6);
    expect(gapBefore(walk, [0, 1, 2], 0)).toBe(0);
  });
});

describe("words", () => {
  it("names the root where scores are divided by one, and the factor where not", () => {
    expect(words("scaled", readWalk(worked)).sentence).toContain("√2 ≈ 1.41");
    expect(words("scaled", readWalk(real)).formula).toBe("scaled = score × 0.25");
  });
  it("has one sentence for every step", () => {
    for (const name of stepsOf(readWalk(real)))
      expect(words(name, readWalk(real)).sentence).toMatch(/^[^.]*(\.\d+[^.]*)?\.$/);
  });
});
