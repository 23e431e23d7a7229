/** What a model adds to a text, token by token, as its events come in. */

import type { Job, TokenProbability } from "../../source/source";

export interface Made {
  token: string;
  top: readonly TokenProbability[];
  /** Where it looked; the words of the keys where the source knows them already. */
  attended: readonly { key: number; weight: number; token?: string }[];
}

/** The tokens so far, with what an event adds; events that only tell of progress add nothing. */
export function grown(made: readonly Made[], event: Job): readonly Made[] {
  if (typeof event.token !== "string") return made;
  return [...made, { token: event.token, top: event.top ?? [], attended: event.attended ?? [] }];
}

/** How sure the model was of the token it took. */
export function chance({ token, top }: Made): number | null {
  return top.find((one) => one.token === token)?.probability ?? null;
}

export const ENDED: readonly string[] = ["done", "failed", "cancelled"];

/** The recording a finished job made. */
export function recordingOf(job: Job): string | null {
  return job.state === "done" ? (job.result?.recording ?? null) : null;
}
