import { expect, test } from "vitest";

import type { Grid, Source, TileAddress } from "../src/source/source";
import { TileStore } from "../src/views/map/store";

const MAP = { rec: "r", role: "decoder", layer: 0, head: 1 };
const MASK = { queries: 100_000, keys: 100_000, causal: true, window: null };
const COARSE: TileAddress = { level: 9, row: 0, col: 0, how: "max" };
const FINE: TileAddress = { level: 0, row: 3, col: 0, how: "max" };

/** A source that answers when it is told to, or when it is given up on. */
function source() {
  const answers: (() => void)[] = [];
  const tile = (_: unknown, __: unknown, signal?: AbortSignal): Promise<Grid> =>
    new Promise((resolve, reject) => {
      answers.push(() => resolve({ rows: 1, cols: 1, values: new Float32Array([0.5]) }));
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  return { store: new TileStore({ tile } as unknown as Source), answers };
}

test("two who want the same tile ask once, and later ones not at all", async () => {
  const { store, answers } = source();
  const both = [store.get(MAP, MASK, FINE), store.get(MAP, MASK, { ...FINE, how: "mean" })];
  answers[0]!();
  expect((await Promise.all(both)).map((grid) => grid.values[0])).toEqual([0.5, 0.5]);
  await store.get(MAP, MASK, FINE);
  expect([store.fetched, answers.length]).toEqual([1, 1]);
});

test("an overview is taken back when the last holder of its head lets go, though it was asked for before", async () => {
  const { store } = source();
  const asked = store.get(MAP, MASK, COARSE);
  const releases = [store.hold(MAP), store.hold(MAP)];
  releases[0]!();
  const again = store.get(MAP, MASK, COARSE); // still the same question
  releases[1]!();
  await expect(asked).rejects.toThrow();
  await expect(again).rejects.toThrow();
  expect(store.fetched).toBe(1);
});

test("after that it can be asked for anew", async () => {
  const { store, answers } = source();
  const release = store.hold(MAP);
  const asked = expect(store.get(MAP, MASK, COARSE)).rejects.toThrow();
  release();
  store.hold(MAP);
  const anew = store.get(MAP, MASK, COARSE); // at once, before the first has even heard of its end
  await asked;
  answers[1]!();
  expect((await anew).values[0]).toBe(0.5);
});

test("a fine tile that is on its way is kept, whoever has left", async () => {
  const { store, answers } = source();
  const release = store.hold(MAP);
  const asked = store.get(MAP, MASK, FINE);
  release();
  answers[0]!();
  await asked;
  expect(store.peek(MAP, FINE)?.values[0]).toBe(0.5);
});
