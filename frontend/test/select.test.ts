import { describe, expect, it } from "vitest";
import type { Atlas } from "../src/source/source";
import { type Card, readCards } from "../src/views/atlas/cards";
import { type Choice, counts, extent, kindsOf, select } from "../src/views/atlas/select";

const card = (layer: number, head: number, scores: Record<string, number | null>, entropy?: number): Card => ({
  role: "decoder",
  layer,
  head,
  kinds: Object.fromEntries(
    Object.entries(scores).map(([kind, score]) => [
      kind,
      { score, bar: kind === "uniform" ? 0.99 : 0.5, evidence: null },
    ]),
  ),
  statistics: entropy === undefined ? {} : { entropy },
  notes: {},
});
const cards = [
  card(1, 0, { induction: 0.9, sink: 0.2 }, 0.5),
  card(0, 1, { induction: 0.1, sink: 0.8 }, 2),
  card(0, 0, { induction: null, sink: 0.6 }),
];
const all: Choice = { kind: null, least: null, stat: null, above: null, sort: "layer" };
const names = (chosen: Card[]) => chosen.map((c) => `${c.layer}.${c.head}`);

describe("select", () => {
  it("shows every head in reading order at first", () => {
    expect(names(select(cards, all))).toEqual(["0.0", "0.1", "1.0"]);
  });
  it("keeps the heads of one kind, by the atlas's bar or the reader's", () => {
    expect(names(select(cards, { ...all, kind: "sink" }))).toEqual(["0.0", "0.1"]);
    expect(names(select(cards, { ...all, kind: "sink", least: 0.7 }))).toEqual(["0.1"]);
  });
  it("sorts by a kind or a statistic, heads without it last", () => {
    expect(names(select(cards, { ...all, sort: "kind:induction" }))).toEqual(["1.0", "0.1", "0.0"]);
    expect(names(select(cards, { ...all, sort: "stat:entropy" }))).toEqual(["0.1", "1.0", "0.0"]);
  });
  it("filters by a statistic and drops heads that have none", () => {
    expect(names(select(cards, { ...all, stat: "entropy", above: 0.5 }))).toEqual(["0.1", "1.0"]);
  });
  it("does not reorder what it was given", () => {
    select(cards, { ...all, sort: "stat:entropy" });
    expect(cards[0]!.layer).toBe(1);
  });
});

describe("kinds", () => {
  it("names a head's kinds, strongest first", () => {
    expect(kindsOf(cards[0]!, 0.1)).toEqual(["induction", "sink"]);
  });
  it("holds each kind to its own bar", () => {
    expect(kindsOf(card(0, 0, { uniform: 0.9, sink: 0.6 }), null)).toEqual(["sink"]);
  });
  it("never counts a score of nothing", () => {
    expect(kindsOf(card(0, 0, { sink: 0 }), 0)).toEqual([]);
  });
  it("counts heads per kind", () => {
    expect([...counts(cards, ["induction", "sink"], null)]).toEqual([
      ["induction", 1],
      ["sink", 2],
    ]);
  });
  it("knows the extent of a statistic", () => {
    expect(extent(cards, "entropy")).toEqual([0.5, 2]);
    expect(extent(cards, "gamma")).toBeNull();
  });
});

describe("readCards", () => {
  it("reads findings with their bar and evidence, and keeps numbers apart from words", () => {
    const head = {
      role: "decoder",
      layer: 2,
      head: 3,
      kinds: ["local"],
      findings: {
        local: { score: 0.6, bar: 0.25, evidence: "near" },
        induction: { score: null, bar: 0.25, evidence: "no repeats" },
      },
      statistics: { gamma: 1.2, decay_better: "power law", decay_note: null },
    };
    const {
      cards: [read],
      kinds,
      statistics,
    } = readCards({ heads: [head] } as unknown as Atlas);
    expect(read).toMatchObject({ role: "decoder", statistics: { gamma: 1.2 }, notes: { decay_better: "power law" } });
    expect(read!.kinds.local).toEqual({ score: 0.6, bar: 0.25, evidence: "near" });
    expect([kinds, statistics]).toEqual([["local", "induction"], ["gamma"]]);
  });
});
