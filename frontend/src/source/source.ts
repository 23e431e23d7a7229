import type { ReadonlySignal } from "@preact/signals";

/** Everything the page can ask about recordings, whoever answers: a server, a notebook, or the page itself. */

export type How = "mean" | "max";

/** One head's map: which recording, which stack of layers, which layer and head. */
export interface MapRef {
  rec: string;
  role: string;
  layer: number;
  head: number;
}

export interface Info {
  version: string;
  models: { name: string; bundled: boolean }[];
  can_run_models: boolean;
}

export interface RecordingEntry {
  id: string;
  name: string;
  model: string;
  tokens: number;
  stacks: string[];
  /** Why it cannot be opened, where it cannot. */
  error?: string | null;
}

export interface Recordings {
  recordings: RecordingEntry[];
  default: string | null;
}

export interface Stack {
  role: string;
  layers: number[];
  heads: number;
  kv_heads: number;
  queries: number;
  keys: number;
  /** Keys each query of a layer sees; null where it sees all that came before. Keyed by layer number. */
  windows: Record<string, number | null>;
  /** Token positions where a new document starts. */
  documents: number[];
  /** Whether a query never sees later keys; where it is missing, one cell is asked. */
  causal?: boolean;
}

export interface Recording {
  id: string;
  name: string;
  model: string;
  kind: string;
  tokenizer: string | null;
  tokens: number;
  complete: boolean;
  /** The model can be run: knock-outs and new texts are possible. */
  live: boolean;
  stacks: Stack[];
  levels: number;
  tile: number;
}

export interface Tokens {
  text: string;
  ids: number[];
  /** Offsets into `text`, in code points. */
  starts: number[];
  stops: number[];
  pieces: string[];
}

/** A matrix of float32 values, row by row. */
export interface Grid {
  rows: number;
  cols: number;
  values: Float32Array;
}

export interface TileAddress {
  level: number;
  row: number;
  col: number;
  how: How;
}

export interface Cell {
  query: number;
  key: number;
  weight: number;
  score: number | null;
  log_weight: number | null;
  rank: number | null;
  visible: boolean;
  distance: number;
}

export interface Row {
  query: number;
  top: { key: number; weight: number }[];
  entropy: number;
  lse: number | null;
  mass_shown: number;
}

export interface Column {
  key: number;
  top: { query: number; weight: number }[];
  mass: number;
}

/** Ranges are half open: queries q0 … q1 − 1, keys k0 … k1 − 1. */
export interface Box {
  q0: number;
  q1: number;
  k0: number;
  k1: number;
}

export interface Region {
  cells: number;
  visible: number;
  mass: number;
  share: number;
  mean: number;
  max: number;
  max_at: [number, number] | null;
  entropy_mean: number | null;
}

export interface Statistics {
  names: string[];
  rows: Record<string, number[]>;
  curves: {
    decay?: { distance: number[]; weight: number[]; [extra: string]: unknown };
    profile?: { position: number[]; mass: number[]; [extra: string]: unknown };
    [extra: string]: unknown;
  };
  numbers: Record<string, number>;
}

export interface TokenProbability {
  token: string;
  probability: number;
}

export interface Step {
  name: string;
  sentence: string;
  shape?: number[];
  [field: string]: unknown;
}

export interface Steps {
  tokens: unknown[];
  steps: Step[];
  next?: TokenProbability[];
  [field: string]: unknown;
}

export interface StepsOptions {
  query: number;
  temperature?: number;
  scaled?: boolean;
}

export interface AtlasHead {
  role: string;
  layer: number;
  head: number;
  kinds: Record<string, number>;
  statistics: Record<string, number>;
  [field: string]: unknown;
}

export interface Atlas {
  heads: AtlasHead[];
  kinds: string[];
  statistics: string[];
  [field: string]: unknown;
}

/** What the server says while an atlas is still being made. */
export interface Pending {
  job: string;
}

export interface KnockoutRequest {
  heads?: [layer: number, head: number][];
  edges?: { layer: number; head: number; query: number; key: number }[];
  keys?: number[];
  at?: number;
}

export interface Knockout {
  kl: number;
  before: TokenProbability[];
  after: TokenProbability[];
  loss_change: number | null;
  [field: string]: unknown;
}

/** What speaks for a kind in one head: where the keys are that it looks for, and what they get along the text. */
export interface Evidence {
  kind: string;
  looks_for: string;
  /** Queries that see such a key, and those of them that have no heavier one. */
  queries: number;
  hits: number;
  mean: number;
  /** Every so many queries one was looked at. */
  step: number;
  along: { position: number[]; weight: number[]; hits: number[] };
  places: { query: number; key: number; weight: number; source: number | null }[];
}

/** One query in every head of a stack, or one key: lists are layers × heads. */
export interface Everywhere {
  query: number | null;
  key: number | null;
  layers: number[];
  heads: number;
  top: number[][];
  top_weight: number[][];
  entropy: number[][] | null;
  mass: number[][] | null;
  weight: number[][] | null;
  others: { position: number; weight: number }[];
}

export type Verdict = "given" | "right" | "rounded" | "inherited" | "wrong";

export interface CheckedCell {
  printed: string;
  verdict: Verdict;
  right: string;
  cause: string;
}

export interface CheckedStep {
  name: string;
  formula: string;
  verdict: Verdict;
  rows: string[];
  columns: string[];
  cells: CheckedCell[][];
  causes: string[];
}

/** What `regard check` says about one paste. */
export interface CheckReport {
  ok: boolean;
  examples: { name: string; checked: number; wrong: number; notes: string[]; steps: CheckedStep[] }[];
}

export type JobRequest =
  | { kind: "record"; text: string; model: string; bound?: boolean }
  | { kind: "generate"; text: string; model: string; new_tokens: number; temperature: number; bound?: boolean }
  | { kind: "pyramid"; recording: string; bound?: boolean }
  | { kind: "atlas"; recording: string; bound?: boolean };

export interface GeneratedToken {
  token: string;
  top: TokenProbability[];
  attended: { key: number; weight: number }[];
}

export interface Job extends Partial<GeneratedToken> {
  id: string;
  kind: string;
  state: "waiting" | "running" | "done" | "failed" | "cancelled" | (string & {});
  done: number;
  total: number | null;
  seconds_left: number | null;
  result: { recording?: string; [field: string]: unknown } | null;
  error: string | null;
}

/** One row of a map (`query`) or one column (`key`). */
export type Line = { query: number } | { key: number };

/** A query, a key, or both. */
export interface Pair {
  query?: number | undefined;
  key?: number | undefined;
}

export interface Source {
  /** Where answers come from; an exported file cannot start anything new. */
  readonly kind: "http" | "comm" | "static";
  /** Jobs that answers are waiting for at present, such as the overview of a long text. */
  readonly waiting: ReadonlySignal<readonly Job[]>;
  /** Whether a tile, row or column can be had at all: an exported page holds some. */
  offersTile(map: MapRef, at: TileAddress): boolean;
  offersWeights(map: MapRef, line: Line, allHeads?: boolean): boolean;
  offersStatistics(map: MapRef): boolean;
  offersEvidence(map: MapRef, kind: string): boolean;
  offersEverywhere(rec: string, role: string, at: Pair): boolean;

  info(): Promise<Info>;
  recordings(): Promise<Recordings>;
  recording(rec: string): Promise<Recording>;
  /** Of a stack's queries or keys; without a stack, of the first. They differ in cross-attention alone. */
  tokens(rec: string, role?: string, side?: "queries" | "keys"): Promise<Tokens>;

  tile(map: MapRef, at: TileAddress, signal?: AbortSignal): Promise<Grid>;
  thumb(map: MapRef, size: number, how: How, signal?: AbortSignal): Promise<Grid>;
  cell(map: MapRef, query: number, key: number, signal?: AbortSignal): Promise<Cell>;
  row(map: MapRef, query: number, k: number, signal?: AbortSignal): Promise<Row>;
  column(map: MapRef, key: number, k: number, signal?: AbortSignal): Promise<Column>;
  weights(map: MapRef, line: Line, signal?: AbortSignal): Promise<Float32Array>;
  region(map: MapRef, box: Box, signal?: AbortSignal): Promise<Region>;
  statistics(map: MapRef, signal?: AbortSignal): Promise<Statistics>;
  steps(map: MapRef, options: StepsOptions, signal?: AbortSignal): Promise<Steps>;
  /** The same row or column of every head of a layer: a grid of heads × positions. */
  layerWeights(rec: string, role: string, layer: number, line: Line, signal?: AbortSignal): Promise<Grid>;

  /** What speaks for a kind in a head. */
  evidence(map: MapRef, kind: string, signal?: AbortSignal): Promise<Evidence>;
  /** A query in every head of a stack; without a query, a key. */
  everywhere(rec: string, role: string, at: Pair, signal?: AbortSignal): Promise<Everywhere>;

  atlas(rec: string): Promise<Atlas | Pending>;
  knockout(rec: string, request: KnockoutRequest, signal?: AbortSignal): Promise<Knockout>;
  /** Judge printed numbers. */
  check(text: string, signal?: AbortSignal): Promise<CheckReport>;
  workedNames(): Promise<string[]>;
  worked(name: string): Promise<Steps>;

  startJob(request: JobRequest): Promise<string>;
  job(id: string): Promise<Job>;
  cancelJob(id: string): Promise<void>;
  /** Calls back on every change until the job ends; the returned function stops listening. */
  watchJob(id: string, onChange: (job: Job) => void, onLost?: (error: SourceError) => void): () => void;
}

/** Said by whoever answers; `status` is HTTP's number, 0 where nobody answered. `job`: asking again helps when that is done. */
export class SourceError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly job: string | null = null,
  ) {
    super(message);
    this.name = "SourceError";
  }
}

const ENDED = new Set(["done", "failed", "cancelled"]);

export function hasEnded(job: Job): boolean {
  return ENDED.has(job.state);
}

export function isPending(answer: Atlas | Pending): answer is Pending {
  return "job" in answer && !("heads" in answer);
}
