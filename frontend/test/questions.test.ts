import { expect, it } from "vitest";

import { addressOf, questionsOf } from "../src/parts/questions";
import { visible } from "../src/parts/tokens";
import { createState } from "../src/state";

const PIECES = ["The", " Mar", "ch", " Hare", ",", " the", " Mar", "ch"];
const tokens = {
  count: PIECES.length,
  raw: (i: number) => PIECES[i] ?? "",
  label: (i: number) => visible(PIECES[i] ?? ""),
};
const found = {
  returning: {
    word: "March",
    mentions: 2,
    query: 6,
    key: 2,
    gap: 5,
    finders: [
      { layer: 5, head: 4, weight: 0.75 },
      { layer: 2, head: 0, weight: 0.25 },
    ],
  },
  farthest: { layer: 8, head: 1, query: 7, key: 1, weight: 0.5, distance: 6 },
};

it("each question leads to the head and the tokens that were found", () => {
  const asked = questionsOf(found, tokens, true);
  expect(asked.map(({ id, view }) => [id, view])).toEqual([
    ["returns", "text"],
    ["finder", "token"],
    ["without", "matter"],
    ["farthest", "map"],
  ]);
  expect(asked[1]!.answer).toBe("Layer 5, head 4: 75.0 % of its weight is on them.");
  expect(asked[2]!.answer).toContain("still expects “ch” after “Mar”");
  expect(asked[3]!.answer).toContain("“March” at 7 puts 50.0 % of its weight on “March”, 6 tokens before");
  const state = createState({
    url: false,
    hash: "#/map?rec=a&role=decoder&palette=inferno&query=1&box=1-2_3-4&cuts=1.1",
  });
  expect(addressOf(asked[0]!, state)).toBe("#/text?rec=a&role=decoder&palette=inferno&layer=5&head=4&query=6");
  expect(addressOf(asked[2]!, state)).toContain("block=several&cuts=5.4+2.0");
});

it("nothing is asked that the recording does not answer", () => {
  expect(questionsOf({ returning: null, farthest: null }, tokens, true)).toEqual([]);
  expect(questionsOf(found, tokens, false).map(({ id }) => id)).not.toContain("without");
});
