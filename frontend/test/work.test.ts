import { beforeEach, expect, it, vi } from "vitest";
import { type Job, type Source, SourceError } from "../src/source/source";
import * as work from "../src/views/try/work";

const event = (extra: Partial<Job>): Job => ({
  id: "7",
  kind: "generate",
  title: "",
  state: "running",
  done: 0,
  total: 2,
  seconds: 0,
  seconds_left: null,
  result: null,
  error: null,
  abandoned: false,
  ...extra,
});
const request = { kind: "generate", text: "Once", model: "bundled", new_tokens: 2, temperature: 0 } as const;

let tell: (job: Job) => void;
let lose: (error: SourceError) => void;
const left = vi.fn();
const source = {
  startJob: vi.fn(async () => "7"),
  cancelJob: vi.fn(async () => undefined),
  watchJob: (_: string, onChange: typeof tell, onLost: typeof lose) => {
    [tell, lose] = [onChange, onLost];
    return left;
  },
} as unknown as Source;

beforeEach(() => vi.clearAllMocks());

it("is busy from the start to the end and keeps what was made", async () => {
  const onEnd = vi.fn();
  const started = work.start(source, request, onEnd);
  expect(work.busy.value).toBe(true);
  await started;
  tell(event({ token: " upon" }));
  tell(event({ token: " a", done: 2 }));
  expect(work.made.value.map((one) => one.token)).toEqual([" upon", " a"]);
  tell(event({ state: "done", result: { recording: "r" } }));
  expect([work.busy.value, work.given.value, onEnd.mock.calls.length]).toEqual([false, "Once", 1]);
});

it("leaves the old job and forgets its tokens when a new one starts", async () => {
  await work.start(source, request, () => undefined);
  tell(event({ token: "x" }));
  await work.start(source, request, () => undefined);
  expect(left).toHaveBeenCalled();
  expect(work.made.value).toEqual([]);
});

it("says why a job failed, was lost, or never began", async () => {
  await work.start(source, request, () => undefined);
  tell(event({ state: "failed", error: "The text is empty." }));
  expect([work.failure.value, work.busy.value]).toEqual(["The text is empty.", false]);
  lose(new SourceError("The server closed the progress stream.", 0));
  expect(work.failure.value).toMatch(/closed/);
  vi.mocked(source.startJob).mockRejectedValueOnce(new SourceError("Too many jobs.", 429));
  await work.start(source, request, () => undefined);
  expect([work.failure.value, work.busy.value]).toEqual(["Too many jobs.", false]);
});

it("stops the job it follows", async () => {
  await work.start(source, request, () => undefined);
  tell(event({}));
  work.stop(source);
  expect(source.cancelJob).toHaveBeenCalledWith("7");
});
