/** The reader's own text and the one job at work on it; both outlive the view, so that a look at the map loses nothing. */

import { batch, computed, signal } from "@preact/signals";
import { sentence } from "../../parts/answer";
import type { Job, JobRequest, Source } from "../../source/source";
import type { ViewState } from "../../state";
import { ENDED, grown, type Made, recordingOf } from "./generation";

export const text = signal<string | null>(null);
/** What the recording is to be called; "" leaves that to its first words. */
export const name = signal("");
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

/** What the server calls the book. */
export const BOOK = "Alice's Adventures in Wonderland";

/** Let the bundled model read the book; whoever still waits for it then is shown its map. */
export async function beginBook(source: Source, state: ViewState): Promise<void> {
  await start(source, { kind: "book", bound: false }, (ended) => {
    const made = recordingOf(ended);
    if (made && state.view.peek() === "try") showRecording(state, made);
  });
}

/** The map of another recording, all of it. */
export function showRecording(state: ViewState, rec: string): void {
  state.go({ view: "map", rec, role: "", x: null, y: null, z: null, query: null, key: null });
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
