import { signal } from "@preact/signals";

import type { Request, Transport } from "./paths";
import { type Grid, hasEnded, type Job, SourceError } from "./source";

/** One job, and everybody whose answer waits for it. */
interface Wait {
  readonly ends: Set<(error: SourceError | null) => void>;
  stop(): void;
}

/** Asks again when the job is done that an answer needs first; a job that nobody waits for any more is left. */
export class WaitingTransport implements Transport {
  readonly waiting = signal<readonly Job[]>([]);
  private readonly waits = new Map<string, Wait>();

  constructor(private readonly inner: Transport) {}

  get kind(): Transport["kind"] {
    return this.inner.kind;
  }

  json(path: string, request?: Request): Promise<unknown> {
    return this.again(() => this.inner.json(path, request), request?.signal);
  }

  grid(path: string, request?: Request): Promise<Grid> {
    return this.again(() => this.inner.grid(path, request), request?.signal);
  }

  events(path: string, onEvent: (data: unknown) => void, onLost: (error: SourceError) => void): () => void {
    return this.inner.events(path, onEvent, onLost);
  }

  private async again<T>(ask: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (!(error instanceof SourceError) || error.job === null) throw error;
        await this.ended(error.job, signal);
      }
    }
  }

  private ended(id: string, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      // One listener for all: a browser opens no more than six connections to a server.
      const wait = this.waits.get(id) ?? this.listen(id);
      const leave = (): void => {
        wait.ends.delete(end);
        if (wait.ends.size === 0) this.forget(id);
        reject(signal?.reason);
      };
      const end = (error: SourceError | null): void => {
        signal?.removeEventListener("abort", leave);
        if (error) reject(error);
        else resolve();
      };
      wait.ends.add(end);
      signal?.addEventListener("abort", leave, { once: true });
    });
  }

  private listen(id: string): Wait {
    const wait: Wait = { ends: new Set(), stop: () => undefined };
    this.waits.set(id, wait);
    const finish = (error: SourceError | null): void => {
      this.forget(id);
      for (const end of wait.ends) end(error);
    };
    wait.stop = this.inner.events(
      `/api/jobs/${encodeURIComponent(id)}/events`,
      (data) => {
        const job = data as Job;
        if (!this.waits.has(id)) return;
        if (!hasEnded(job)) this.waiting.value = [...this.others(id), job];
        // Everybody else left it just before this page began to listen: asking again starts it anew.
        else if (job.state === "done" || job.abandoned) finish(null);
        else finish(new SourceError(job.error ?? "This work was cancelled.", 503));
      },
      finish,
    );
    return wait;
  }

  private forget(id: string): void {
    this.waits.get(id)?.stop();
    this.waits.delete(id);
    this.waiting.value = this.others(id);
  }

  private others(id: string): Job[] {
    return this.waiting.peek().filter((job) => job.id !== id);
  }
}
