import { expect, it } from "vitest";
import type { Job } from "../src/source/source";
import { chance, grown, recordingOf } from "../src/views/try/generation";

const event = (extra: Partial<Job>): Job => ({
  id: "1",
  kind: "generate",
  title: "",
  state: "running",
  done: 1,
  total: 3,
  seconds: 0,
  seconds_left: null,
  result: null,
  error: null,
  abandoned: false,
  ...extra,
});
const top = [
  { token: " cat", id: 1, probability: 0.6 },
  { token: " dog", id: 2, probability: 0.3 },
];

it("grows by one token per event that brings one", () => {
  const one = grown([], event({ token: " dog", top, attended: [{ key: 2, token: "a", weight: 0.4 }] }));
  expect(grown(one, event({}))).toBe(one);
  expect(grown(one, event({ token: "." }))).toEqual([one[0], { token: ".", top: [], attended: [] }]);
});

it("keeps a token that is empty text", () => {
  expect(grown([], event({ token: "" }))).toHaveLength(1);
});

it("knows how likely the taken token was, unless it was not among the listed", () => {
  expect(chance({ token: " dog", top, attended: [] })).toBe(0.3);
  expect(chance({ token: " emu", top, attended: [] })).toBeNull();
});

it("finds the recording of a finished job only", () => {
  const result = { recording: "abc" };
  expect(recordingOf(event({ state: "done", result }))).toBe("abc");
  expect(recordingOf(event({ state: "running", result }))).toBeNull();
});
