import { describe, expect, test } from "vitest";

import { type Channel, CommSource, CommTransport } from "../src/source/comm";
import { WaitingTransport } from "../src/source/waiting";
import { createState } from "../src/state";
import { bind, type Traits } from "../src/widget/traits";

interface Question {
  id: string;
  path: string;
  cancel?: string;
}

type Heard = (content: unknown, buffers: readonly BufferSource[]) => void;

/** A notebook's channel with a kernel that the test plays. */
function channel(
  kernel: (question: Question, reply: (status: number, result: unknown, buffer?: BufferSource) => void) => void,
) {
  const listeners = new Set<Heard>();
  const sent: Question[] = [];
  const made: Channel = {
    send(content) {
      const question = content as Question;
      sent.push(question);
      kernel(question, (status, result, buffer) => {
        const answer = { id: question.id, status, result };
        queueMicrotask(() => {
          for (const heard of listeners) heard(answer, buffer ? [buffer] : []);
        });
      });
    },
    on: (_, heard) => void listeners.add(heard),
    off: (_, heard) => void listeners.delete(heard),
  };
  return { made, sent, listeners };
}

const MAP = { rec: "r", role: "decoder", layer: 1, head: 2 };

describe("questions over a notebook's channel", () => {
  test("a tile is read from a window at an odd offset of the message", async () => {
    const bytes = new Uint8Array(3 + 24);
    new DataView(bytes.buffer).setFloat32(3 + 20, 0.5, true);
    const { made, sent } = channel((_, reply) => reply(200, { rows: 2, cols: 3 }, new DataView(bytes.buffer, 3, 24)));
    const grid = await new CommSource(new CommTransport(made)).tile(MAP, { level: 0, row: 1, col: 2, how: "max" });
    expect([grid.rows, grid.cols, grid.values[5]]).toEqual([2, 3, 0.5]);
    expect(sent[0]!.path).toBe("/api/recordings/r/stacks/decoder/layers/1/heads/2/tile?level=0&row=1&col=2&how=max");
  });

  test("a refusal becomes an error with the kernel's sentence", async () => {
    const { made } = channel((_, reply) => reply(404, { error: "no such head." }));
    await expect(new CommTransport(made).json("/api/x")).rejects.toMatchObject({
      message: "no such head.",
      status: 404,
    });
  });

  test("an aborted question is taken back and its late answer ignored", async () => {
    const { made, sent } = channel(() => undefined);
    const stop = new AbortController();
    const asked = new CommTransport(made).json("/api/x", { signal: stop.signal });
    stop.abort();
    await expect(asked).rejects.toThrow();
    expect(sent[1]).toEqual({ cancel: sent[0]!.id });
  });

  test("what needs a job is asked again when the job is done", async () => {
    let ready = false;
    const { made, sent } = channel(({ path }, reply) => {
      if (path.startsWith("/api/jobs/")) {
        ready = true;
        reply(200, { state: "done" });
      } else if (ready) reply(200, { answer: 42 });
      else reply(503, { error: "Being made.", job: "j" });
    });
    expect(await new WaitingTransport(new CommTransport(made)).json("/api/x")).toEqual({ answer: 42 });
    expect(sent.map(({ path }) => path)).toEqual(["/api/x", "/api/jobs/j", "/api/x"]);
  });

  test("two views of one widget take only their own answers", async () => {
    const { made, listeners } = channel(({ path }, reply) => reply(200, path));
    const views = [new CommTransport(made), new CommTransport(made)];
    expect(await Promise.all(views.map((view, i) => view.json(`/api/${i}`)))).toEqual(["/api/0", "/api/1"]);
    for (const view of views) view.dispose();
    expect(listeners.size).toBe(0);
  });
});

/** A widget's traits as anywidget keeps them. */
function traits(values: Record<string, unknown>) {
  const listeners = new Map<string, () => void>();
  const saved: Record<string, unknown>[] = [];
  let unsaved: Record<string, unknown> = {};
  const made: Traits = {
    get: (name) => values[name] ?? null,
    set(name, value) {
      values[name] = unsaved[name] = value;
      listeners.get(`change:${name}`)?.();
    },
    save_changes() {
      saved.push(unsaved);
      unsaved = {};
    },
    on: (event, changed) => void listeners.set(event, changed),
    off: (event) => void listeners.delete(event),
  };
  const fromKernel = (name: string, value: unknown): void => {
    values[name] = value;
    listeners.get(`change:${name}`)?.();
  };
  return { made, saved, fromKernel };
}

const START = { view: "map", role: "decoder", layer: 3, head: 1, how: "max", scale: "log", palette: "viridis" };
const pause = () => new Promise((resolve) => setTimeout(resolve, 160));

test("the view follows the traits and the traits the view, without an echo", async () => {
  const { made, saved, fromKernel } = traits({ ...START });
  const state = createState({ url: false });
  const stop = bind(state, made);
  expect([state.layer.value, state.head.value, state.x.value]).toEqual([3, 1, null]);
  state.go({ x: 4.5, y: 2 });
  state.go({ x: 5.5 });
  fromKernel("head", 0); // must not undo the move that was not told yet
  await pause();
  expect([state.head.value, state.x.value]).toEqual([0, 5.5]);
  expect(saved).toEqual([{ x: 5.5, y: 2 }]);
  stop();
});
