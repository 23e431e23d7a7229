import { expect, test } from "vitest";

import type { Transport } from "../src/source/paths";
import { type Job, SourceError } from "../src/source/source";
import { WaitingTransport } from "../src/source/waiting";

const job = (state: Job["state"], done = 0): Job => ({
  id: "j",
  kind: "pyramid",
  title: "",
  state,
  done,
  total: 4,
  seconds: 0,
  seconds_left: null,
  result: null,
  error: state === "failed" ? "No room." : null,
  abandoned: false,
});

/** A server that needs job "j" before it answers. */
function server() {
  let ready = false;
  const listeners = new Set<(data: unknown) => void>();
  const inner: Transport = {
    kind: "http",
    json: () => (ready ? Promise.resolve(42) : Promise.reject(new SourceError("Being made.", 503, "j"))),
    grid: () => Promise.reject(new SourceError("No such tile.", 404)),
    events(path, onEvent) {
      expect(path).toBe("/api/jobs/j/events");
      listeners.add(onEvent);
      return () => listeners.delete(onEvent);
    },
  };
  const tell = (now: Job): void => {
    ready = now.state === "done";
    for (const listener of [...listeners]) listener(now);
  };
  return { transport: new WaitingTransport(inner), tell, listeners };
}

const asked = () => new Promise((resolve) => setTimeout(resolve));

test("an answer that needs a job comes when the job is done, over one listener, and its progress is seen", async () => {
  const { transport, tell, listeners } = server();
  const answers = Promise.all([transport.json("/api/a"), transport.json("/api/b")]);
  await asked();
  expect(listeners.size).toBe(1);
  tell(job("running", 3));
  expect(transport.waiting.value.map(({ done }) => done)).toEqual([3]);
  tell(job("done"));
  expect(await answers).toEqual([42, 42]);
  expect(transport.waiting.value).toEqual([]);
  expect(listeners.size).toBe(0);
});

test("a job that fails refuses the answer with its sentence", async () => {
  const { transport, tell } = server();
  const answer = transport.json("/api/a");
  await asked();
  tell(job("failed"));
  await expect(answer).rejects.toMatchObject({ message: "No room.", status: 503 });
});

test("a job that all others left just before is asked for again, and one that was cancelled is not", async () => {
  const { transport, tell, listeners } = server();
  const answer = transport.json("/api/a");
  await asked();
  tell({ ...job("cancelled"), abandoned: true });
  await asked();
  expect(listeners.size).toBe(1);
  tell(job("cancelled"));
  await expect(answer).rejects.toMatchObject({ message: "This work was cancelled.", status: 503 });
});

test("a job is listened to until the last one who waits for it has gone", async () => {
  const { transport, tell, listeners } = server();
  const stops = [new AbortController(), new AbortController()];
  const answers = stops.map(({ signal }) => transport.json("/api/a", { signal }));
  const refused = answers.map((answer) => expect(answer).rejects.toThrow());
  await asked();
  tell(job("running", 1));
  stops[0]!.abort();
  expect([listeners.size, transport.waiting.value.length]).toEqual([1, 1]);
  stops[1]!.abort();
  expect([listeners.size, transport.waiting.value.length]).toEqual([0, 0]);
  await Promise.all(refused);
});

test("other refusals pass through", async () => {
  await expect(server().transport.grid("/api/x")).rejects.toMatchObject({ status: 404, job: null });
});
