/** Running the model without what was blocked: once, or for one key after the other, with progress and an end. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Open } from "../../context";
import { sentence } from "../../parts/answer";
import type { Job, Knockout, KnockoutRequest, Source } from "../../source/source";
import { request, type Target, type Try, tries } from "./tries";

/** A longer text is read by a job: it takes its time, and tells how far it is. */
const LONG = 8192;
/** So many keys are blocked one after the other. */
const KEYS = 12;

export interface Busy {
  label: string;
  done: number;
  total: number | null;
  secondsLeft: number | null;
}

export interface Blocking {
  block(target: Target): Promise<void>;
  /** Each of the heaviest keys of the query by itself: weights against effects. */
  sweep(target: Target): Promise<void>;
  stop(): void;
  busy: Busy | null;
  failure: string | null;
}

export function useBlock(source: Source, open: Open): Blocking {
  const [busy, setBusy] = useState<Busy | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const run = async (work: (signal: AbortSignal) => Promise<void>): Promise<void> => {
    const stop = new AbortController();
    abort.current = stop;
    setBusy({ label: "Running the model…", done: 0, total: null, secondsLeft: null });
    setFailure(null);
    try {
      await work(stop.signal);
    } catch (error) {
      if (!stop.signal.aborted) setFailure(sentence(error));
    }
    setBusy(null);
  };

  const tell = (job: Job): void =>
    setBusy({
      label: job.state === "waiting" ? "Waiting for other work…" : "Running the model, layer by layer…",
      done: job.done,
      total: job.total,
      secondsLeft: job.seconds_left,
    });

  const once = async (target: Target, signal: AbortSignal): Promise<void> => {
    const { id } = open.recording;
    const wanted = { ...request(target), stack: open.stack.role };
    const [weight, result] = await Promise.all([
      removed(source, id, open.stack.role, target),
      open.stack.queries > LONG ? asJob(source, id, wanted, signal, tell) : source.knockout(id, wanted, signal),
    ]);
    signal.throwIfAborted();
    const made: Try = { rec: id, target, weight, result };
    tries.value = [...tries.value, made];
  };

  return {
    busy,
    failure,
    stop: () => abort.current?.abort(),
    block: (target) => run((signal) => once(target, signal)),
    sweep: (target) =>
      run(async (signal) => {
        const { layer, head, query } = target;
        const map = { rec: open.recording.id, role: open.stack.role, layer, head };
        const { top } = await source.row(map, query, KEYS, signal);
        for (const [done, { key }] of top.entries()) {
          setBusy({ label: `Key ${done + 1} of ${top.length}…`, done, total: top.length, secondsLeft: null });
          await once({ ...target, key }, signal);
        }
      }),
  };
}

/** The answer of a job; when nobody waits for it any more the job ends. */
async function asJob(
  source: Source,
  rec: string,
  wanted: KnockoutRequest,
  signal: AbortSignal,
  tell: (job: Job) => void,
): Promise<Knockout> {
  const id = await source.startJob({ kind: "knockout", recording: rec, bound: true, ...wanted });
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      stop();
      source.cancelJob(id).catch(() => undefined);
      reject(signal.reason);
    };
    const stop = source.watchJob(
      id,
      (job) => {
        if (signal.aborted) return;
        tell(job);
        if (job.state === "done" && job.result?.knockout) resolve(job.result.knockout);
        else if (job.state === "failed" || job.state === "cancelled") reject(new Error(job.error ?? "It was stopped."));
      },
      reject,
    );
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
  });
}

/** The weight that a cut takes away: of an edge its own, of a token the layer's mean over heads, of heads none. */
async function removed(
  source: Source,
  rec: string,
  role: string,
  { mode, layer, head, query, key }: Target,
): Promise<number | null> {
  if (mode === "head" || mode === "several") return null;
  if (mode === "edge") return (await source.cell({ rec, role, layer, head }, query, key)).weight;
  const grid = await source.layerWeights(rec, role, layer, { query });
  const heads = Array.from({ length: grid.rows }, (_, h) => grid.values[h * grid.cols + key] ?? 0);
  return heads.reduce((sum, w) => sum + w, 0) / Math.max(1, heads.length);
}
