import { signal } from "@preact/signals";

import {
  type Alignment,
  type Atlas,
  type Box,
  type Cell,
  type CheckReport,
  type Column,
  type Distances,
  type Everywhere,
  type Evidence,
  type Grid,
  type How,
  hasEnded,
  type Info,
  type Job,
  type JobRequest,
  type Knockout,
  type KnockoutRequest,
  type Line,
  type MapRef,
  type Pair,
  type Pending,
  type Questions,
  type Recording,
  type Recordings,
  type Region,
  type Row,
  type Said,
  type Sights,
  type Source,
  type SourceError,
  type Statistics,
  type Steps,
  type StepsOptions,
  type TileAddress,
  type Tokens,
  type Upload,
} from "./source";

export interface Request {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  body?: unknown;
  /** A body as it is, which only a server can be sent. */
  raw?: Blob;
  signal?: AbortSignal | undefined;
}

/** Carries a path to whoever answers; the paths are the same over HTTP, in a notebook and in an exported file. */
export interface Transport {
  readonly kind: Source["kind"];
  readonly waiting?: Source["waiting"];
  json(path: string, request?: Request): Promise<unknown>;
  grid(path: string, request?: Request): Promise<Grid>;
  events(path: string, onEvent: (data: unknown) => void, onLost: (error: SourceError) => void): () => void;
}

type Query = Record<string, string | number | boolean | undefined>;

export function withQuery(path: string, query: Query): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined);
  if (pairs.length === 0) return path;
  return `${path}?${pairs.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&")}`;
}

function stackPath(rec: string, role: string): string {
  return `/api/recordings/${encodeURIComponent(rec)}/stacks/${encodeURIComponent(role)}`;
}

function layerPath(rec: string, role: string, layer: number): string {
  return `${stackPath(rec, role)}/layers/${layer}`;
}

function comparePath(rec: string, role: string, other: string): string {
  return `${stackPath(rec, role)}/compare/${encodeURIComponent(other)}`;
}

export function mapPath(map: MapRef): string {
  return `${layerPath(map.rec, map.role, map.layer)}/heads/${map.head}`;
}

/** A server takes no larger request than 4 MiB. */
const PIECE = 2 ** 21;

const NOTHING = signal<readonly Job[]>([]);

/** The one place that knows the paths: a Source over any transport. */
export class PathSource implements Source {
  constructor(readonly transport: Transport) {}

  get kind(): Source["kind"] {
    return this.transport.kind;
  }

  get waiting(): Source["waiting"] {
    return this.transport.waiting ?? NOTHING;
  }

  offersTile(map: MapRef, { level, row, col, how }: TileAddress): boolean {
    return this.offers(withQuery(`${mapPath(map)}/tile`, { level, row, col, how }));
  }

  offersWeights(map: MapRef, line: Line, allHeads = false): boolean {
    const path = allHeads ? layerPath(map.rec, map.role, map.layer) : mapPath(map);
    return this.offers(withQuery(`${path}/weights`, { ...line }));
  }

  offersStatistics(map: MapRef): boolean {
    return this.offers(`${mapPath(map)}/statistics`);
  }

  offersEvidence(map: MapRef, kind: string): boolean {
    return this.offers(withQuery(`${mapPath(map)}/evidence`, { kind }));
  }

  offersEverywhere(rec: string, role: string, { query, key }: Pair): boolean {
    return this.offers(withQuery(`${stackPath(rec, role)}/everywhere`, { query, key }));
  }

  /** Whoever can compute offers everything. */
  protected offers(_path: string): boolean {
    return true;
  }

  private async json<T>(path: string, request?: Request): Promise<T> {
    return (await this.transport.json(path, request)) as T;
  }

  info(): Promise<Info> {
    return this.json("/api/info");
  }

  recordings(): Promise<Recordings> {
    return this.json("/api/recordings");
  }

  recording(rec: string): Promise<Recording> {
    return this.json(`/api/recordings/${encodeURIComponent(rec)}`);
  }

  tokens(rec: string, role?: string, side?: "queries" | "keys"): Promise<Tokens> {
    return this.json(withQuery(`/api/recordings/${encodeURIComponent(rec)}/tokens`, { role, side }));
  }

  tile(map: MapRef, at: TileAddress, signal?: AbortSignal): Promise<Grid> {
    const { level, row, col, how } = at;
    return this.transport.grid(withQuery(`${mapPath(map)}/tile`, { level, row, col, how }), { signal });
  }

  thumb(map: MapRef, size: number, how: How, signal?: AbortSignal): Promise<Grid> {
    return this.transport.grid(withQuery(`${mapPath(map)}/thumb`, { size, how }), { signal });
  }

  cell(map: MapRef, query: number, key: number, signal?: AbortSignal): Promise<Cell> {
    return this.json(withQuery(`${mapPath(map)}/cell`, { query, key }), { signal });
  }

  row(map: MapRef, query: number, k: number, signal?: AbortSignal): Promise<Row> {
    return this.json(withQuery(`${mapPath(map)}/row`, { query, k }), { signal });
  }

  column(map: MapRef, key: number, k: number, signal?: AbortSignal): Promise<Column> {
    return this.json(withQuery(`${mapPath(map)}/column`, { key, k }), { signal });
  }

  async weights(map: MapRef, line: Line, signal?: AbortSignal): Promise<Float32Array> {
    return (await this.transport.grid(withQuery(`${mapPath(map)}/weights`, { ...line }), { signal })).values;
  }

  region(map: MapRef, box: Box, signal?: AbortSignal): Promise<Region> {
    const { q0, q1, k0, k1 } = box;
    return this.json(withQuery(`${mapPath(map)}/region`, { q0, q1, k0, k1 }), { signal });
  }

  statistics(map: MapRef, signal?: AbortSignal): Promise<Statistics> {
    return this.json(`${mapPath(map)}/statistics`, { signal });
  }

  steps(map: MapRef, options: StepsOptions, signal?: AbortSignal): Promise<Steps> {
    const { query, temperature, scaled } = options;
    return this.json(withQuery(`${mapPath(map)}/steps`, { query, temperature, scaled }), { signal });
  }

  layerWeights(rec: string, role: string, layer: number, line: Line, signal?: AbortSignal): Promise<Grid> {
    return this.transport.grid(withQuery(`${layerPath(rec, role, layer)}/weights`, { ...line }), { signal });
  }

  evidence(map: MapRef, kind: string, signal?: AbortSignal): Promise<Evidence> {
    return this.json(withQuery(`${mapPath(map)}/evidence`, { kind }), { signal });
  }

  everywhere(rec: string, role: string, { query, key }: Pair, signal?: AbortSignal): Promise<Everywhere> {
    return this.json(withQuery(`${stackPath(rec, role)}/everywhere`, { query, key }), { signal });
  }

  questions(rec: string, role: string, signal?: AbortSignal): Promise<Questions> {
    return this.json(`${stackPath(rec, role)}/questions`, { signal });
  }

  pictures(rec: string, role: string, signal?: AbortSignal): Promise<Sights> {
    return this.json(`${stackPath(rec, role)}/pictures`, { signal });
  }

  said(rec: string, signal?: AbortSignal): Promise<Said> {
    return this.json(`/api/recordings/${encodeURIComponent(rec)}/said`, { signal });
  }

  alignment(rec: string, role: string, other: string, signal?: AbortSignal): Promise<Alignment> {
    return this.json(comparePath(rec, role, other), { signal });
  }

  distances(rec: string, role: string, other: string, signal?: AbortSignal): Promise<Distances> {
    return this.json(`${comparePath(rec, role, other)}/heads`, { signal });
  }

  difference(map: MapRef, other: string, box: Box, signal?: AbortSignal): Promise<Grid> {
    const path = `${comparePath(map.rec, map.role, other)}/layers/${map.layer}/heads/${map.head}/difference`;
    return this.transport.grid(withQuery(path, { ...box }), { signal });
  }

  async atlas(rec: string): Promise<Atlas | Pending> {
    const answer = await this.json<Atlas | { job: string } | { id: string }>(
      `/api/recordings/${encodeURIComponent(rec)}/atlas`,
    );
    if ("heads" in answer) return answer;
    return { job: "job" in answer ? String(answer.job) : answer.id };
  }

  knockout(rec: string, request: KnockoutRequest, signal?: AbortSignal): Promise<Knockout> {
    const path = `/api/recordings/${encodeURIComponent(rec)}/knockout`;
    return this.json(path, { method: "POST", body: request, signal });
  }

  check(text: string, signal?: AbortSignal): Promise<CheckReport> {
    return this.json("/api/check", { method: "POST", body: { text }, signal });
  }

  async workedNames(): Promise<string[]> {
    const answer = await this.json<string[] | { names: string[] }>("/api/worked");
    return Array.isArray(answer) ? answer : answer.names;
  }

  worked(name: string): Promise<Steps> {
    return this.json(`/api/worked/${encodeURIComponent(name)}`);
  }

  async keep(rec: string, name: string): Promise<string> {
    const path = `/api/recordings/${encodeURIComponent(rec)}/keep`;
    return (await this.json<{ recording: string }>(path, { method: "POST", body: { name } })).recording;
  }

  async remove(rec: string): Promise<void> {
    await this.json(`/api/recordings/${encodeURIComponent(rec)}`, { method: "DELETE" });
  }

  async upload(
    files: readonly Upload[],
    name: string,
    tell: (done: number, total: number) => void,
    signal: AbortSignal,
  ): Promise<string> {
    const { id } = await this.json<{ id: string }>("/api/uploads", { method: "POST" });
    const total = files.reduce((sum, { file }) => sum + file.size, 0);
    let done = 0;
    try {
      for (const { name: own, file } of files) {
        for (let at = 0; at < Math.max(1, file.size); at += PIECE) {
          signal.throwIfAborted();
          tell(done, total);
          const path = withQuery(`/api/uploads/${id}/${encodeURIComponent(own)}`, { at });
          const raw = file.slice(at, at + PIECE);
          await this.json(path, { method: "PUT", raw, signal });
          done += raw.size;
        }
      }
      tell(total, total);
      const body = { name: name.slice(0, 80) || "recording" };
      return (await this.json<{ recording: string }>(`/api/uploads/${id}`, { method: "POST", body, signal })).recording;
    } catch (error) {
      this.json(`/api/uploads/${id}`, { method: "DELETE" }).catch(() => undefined); // it may be gone already
      throw error;
    }
  }

  async jobs(): Promise<readonly Job[]> {
    return (await this.json<{ jobs: Job[] }>("/api/jobs")).jobs;
  }

  async startJob(request: JobRequest): Promise<string> {
    return (await this.json<{ id: string }>("/api/jobs", { method: "POST", body: request })).id;
  }

  job(id: string): Promise<Job> {
    return this.json(`/api/jobs/${encodeURIComponent(id)}`);
  }

  async cancelJob(id: string): Promise<void> {
    await this.json(`/api/jobs/${encodeURIComponent(id)}`, { method: "DELETE" });
  }

  watchJob(id: string, onChange: (job: Job) => void, onLost?: (error: SourceError) => void): () => void {
    const stop = this.transport.events(
      `/api/jobs/${encodeURIComponent(id)}/events`,
      (data) => {
        const job = data as Job;
        onChange(job);
        if (hasEnded(job)) stop();
      },
      (error) => onLost?.(error),
    );
    return stop;
  }
}
