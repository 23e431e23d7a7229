import type { Request, Transport } from "./paths";
import type { Grid, SourceError } from "./source";

/** Remembers the latest answers that went by, so that a view can be exported as it was seen. */
export class MemoryTransport implements Transport {
  readonly answers = new Map<string, unknown>();
  readonly grids = new Map<string, Grid>();

  constructor(
    private readonly inner: Transport,
    private readonly most = 2000,
    private readonly mostGrids = 256,
  ) {}

  get kind(): Transport["kind"] {
    return this.inner.kind;
  }

  get waiting(): Transport["waiting"] {
    return this.inner.waiting;
  }

  async json(path: string, request?: Request): Promise<unknown> {
    const answer = await this.inner.json(path, request);
    if ((request?.method ?? "GET") === "GET") keep(this.answers, path, answer, this.most);
    return answer;
  }

  async grid(path: string, request?: Request): Promise<Grid> {
    const grid = await this.inner.grid(path, request);
    keep(this.grids, path, grid, this.mostGrids);
    return grid;
  }

  events(path: string, onEvent: (data: unknown) => void, onLost: (error: SourceError) => void): () => void {
    return this.inner.events(path, onEvent, onLost);
  }
}

function keep<T>(kept: Map<string, T>, path: string, answer: T, most: number): void {
  kept.delete(path);
  kept.set(path, answer);
  while (kept.size > most) kept.delete(kept.keys().next().value!);
}
