import { describe, expect, it } from "vitest";

import {
  type Cut,
  cutName,
  cutsRequest,
  outside,
  parseCut,
  parseCuts,
  printCut,
  printCuts,
} from "../src/views/matter/cuts";

const EDGE: Cut = { kind: "edge", layer: 5, head: 2, query: [600, 600], key: [530, 539] };

describe("a cut in words", () => {
  it.each<[string, Cut]>([
    ["5.2", { kind: "head", layer: 5, head: 2 }],
    ["L5 H2", { kind: "head", layer: 5, head: 2 }],
    ["layer 5, head 2", { kind: "head", layer: 5, head: 2 }],
    ["layer 5", { kind: "head", layer: 5, head: null }],
    ["5.*", { kind: "head", layer: 5, head: null }],
    ["token 120", { kind: "token", key: [120, 120] }],
    ["tokens 120–140", { kind: "token", key: [120, 140] }],
    ["5.2: 600 → 530-539", EDGE],
    ["5.2: 600 -> 530 - 539", EDGE],
    ["*.*: 600>539", { kind: "edge", layer: null, head: null, query: [600, 600], key: [539, 539] }],
    ["600 > 539", { kind: "edge", layer: null, head: null, query: [600, 600], key: [539, 539] }],
  ])("%s is read", (text, cut) => {
    expect(parseCut(text)).toEqual(cut);
    expect(parseCut(printCut(cut))).toEqual(cut);
  });

  it.each(["", "5", "tokens 9-3", "head", "5.2: 600", "1e9.2", "<b>"])("%j is nothing", (text) => {
    expect(parseCut(text)).toBeNull();
  });

  it("stays in an address, each thing once, and what is damaged is left out", () => {
    const cuts = [EDGE, EDGE, { kind: "token", key: [1, 2] } as const];
    expect(printCuts(cuts)).toBe("5.2q600k530-539 t1-2");
    expect(parseCuts("5.2q600k530-539 oops t1-2")).toEqual([EDGE, cuts[2]]);
  });

  it("has a name with its tokens", () => {
    expect(
      cutName(
        { ...EDGE, key: [539, 539] },
        (i) => `w${i}`,
        (i) => `w${i}`,
      ),
    ).toBe("L5 H2: “w600” 600 → “w539” 539");
    expect(cutName({ kind: "head", layer: 5, head: null })).toBe("all of layer 5");
    expect(cutName({ kind: "token", key: [1, 3] })).toBe("tokens 1–3");
  });
});

it("everything is asked for in one request", () => {
  const cuts: Cut[] = [
    { kind: "head", layer: 5, head: 2 },
    { kind: "head", layer: 6, head: null },
    { kind: "token", key: [1, 3] },
    EDGE,
  ];
  expect(cutsRequest(cuts)).toEqual({
    heads: [[5, 2]],
    keys: [1, 2, 3],
    edges: [
      { layer: 6, head: null, query: null, key: null },
      { layer: 5, head: 2, query: [600], key: [530, 531, 532, 533, 534, 535, 536, 537, 538, 539] },
    ],
  });
});

it("what a stack lacks is said", () => {
  const stack = { layers: [0, 1], heads: 4, queries: 9, keys: 9 };
  expect(outside({ kind: "head", layer: 2, head: 0 }, stack)).toBe("There is no layer 2: layers go from 0 to 1.");
  expect(outside({ kind: "head", layer: 1, head: 4 }, stack)).toContain("heads go from 0 to 3");
  expect(outside({ kind: "token", key: [3, 9] }, stack)).toContain("tokens go from 0 to 8");
  expect(outside({ kind: "edge", layer: null, head: null, query: [9, 9], key: [0, 0] }, stack)).toContain("query 9");
  expect(outside({ kind: "head", layer: 1, head: null }, stack)).toBeNull();
});
