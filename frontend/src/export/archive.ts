import type { Request, Transport } from "../source/paths";
import type { Grid, SourceError } from "../source/source";
import type { View } from "../state";
import type { Try } from "../views/matter/tries";

/** Answers to paths, kept as plain data: what an exported page carries instead of a server. */
export interface Archive {
  /** The address of the view that was exported. */
  hash: string;
  views: View[];
  json: Record<string, unknown>;
  grids: Record<string, PackedGrid>;
  /** What was blocked in “Does it matter?” and what came of it: only a running model could tell again. */
  tries: readonly Try[];
}

/** Float32 values, deflated, in base64. */
export interface PackedGrid {
  rows: number;
  cols: number;
  data: string;
}

export function emptyArchive(hash: string, views: View[]): Archive {
  return { hash, views, json: {}, grids: {}, tries: [] };
}

async function through(
  bytes: Uint8Array<ArrayBuffer>,
  stream: CompressionStream | DecompressionStream,
): Promise<ArrayBuffer> {
  return new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer();
}

export async function pack(grid: Grid): Promise<PackedGrid> {
  const { rows, cols, values } = grid;
  const bytes = new Uint8Array(values.slice().buffer);
  const small = new Uint8Array(await through(bytes, new CompressionStream("deflate")));
  let text = "";
  for (let i = 0; i < small.length; i += 0x8000) text += String.fromCharCode(...small.subarray(i, i + 0x8000));
  return { rows, cols, data: btoa(text) };
}

export async function unpack({ rows, cols, data }: PackedGrid): Promise<Grid> {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return { rows, cols, values: new Float32Array(await through(bytes, new DecompressionStream("deflate"))) };
}

/** Passes questions on and keeps every answer: asking through it is how an export gathers its data. */
export class CollectingTransport implements Transport {
  constructor(
    private readonly inner: Transport,
    readonly archive: Archive,
  ) {}

  get kind(): Transport["kind"] {
    return this.inner.kind;
  }

  async json(path: string, request?: Request): Promise<unknown> {
    const answer = await this.inner.json(path, request);
    if ((request?.method ?? "GET") === "GET") this.archive.json[path] = answer;
    return answer;
  }

  async grid(path: string, request?: Request): Promise<Grid> {
    const grid = await this.inner.grid(path, request);
    this.archive.grids[path] = await pack(grid);
    return grid;
  }

  events(path: string, onEvent: (data: unknown) => void, onLost: (error: SourceError) => void): () => void {
    return this.inner.events(path, onEvent, onLost);
  }
}
