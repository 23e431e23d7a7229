/** The reader's own text and the one job at work on it; both outlive the view, so that a look at the map loses nothing. */

import { batch, computed, signal } from "@preact/signals";
import { sentence } from "../../parts/answer";
import type { Job, JobRequest, Source } from "../../source/source";
import { ENDED, grown, type Made } from "./generation";

export const text = signal<string | null>(null);
/** The text that the present job was given. */
export const given = signal("");
export const job = signal<Job | null>(null);
export const made = signal<readonly Made[]>([]);
export const failure = signal<string | null>(null);
const starting = signal(false);
export const busy = computed(() => starting.value || (job.value !== null && !ENDED.includes(job.value.state)));

let leave = (): void => undefined;

function fail(error: unknown): void {
  batch(() => {
    failure.value = sentence(error);
    job.value = null;
    starting.value = false;
  });
}

/** Start a job and follow it to its end. */
export async function start(source: Source, request: JobRequest, onEnd: (job: Job) => void): Promise<void> {
  leave();
  batch(() => {
    given.value = "text" in request ? request.text : "";
    job.value = null;
    made.value = [];
    failure.value = null;
    starting.value = true;
  });
  try {
    const id = await source.startJob(request);
    leave = source.watchJob(id, (now) => follow(now, onEnd), fail);
  } catch (error) {
    fail(error);
  }
}

function follow(now: Job, onEnd: (job: Job) => void): void {
  batch(() => {
    starting.value = false;
    job.value = now;
    made.value = grown(made.peek(), now);
    if (now.state === "failed") failure.value = now.error ?? "The job failed.";
  });
  if (ENDED.includes(now.state)) onEnd(now);
}

export function stop(source: Source): void {
  const id = job.peek()?.id;
  if (id !== undefined) source.cancelJob(id).catch(fail);
}
