import type { ReadonlySignal } from "@preact/signals";

import type { components } from "./api";

/** Everything the page can ask about recordings, whoever answers: a server, a notebook, or the page itself. */

type Models = components["schemas"];

export type Info = Models["Info"];
export type RecordingEntry = Models["RecordingEntry"];
export type Recordings = Models["Recordings"];
export type Stack = Models["StackShape"];
export type Recording = Models["Described"];
export type Tokens = Models["Tokens"];
export type Cell = Models["Cell"];
export type Row = Models["Row"];
export type Column = Models["Column"];
export type Region = Models["Region"];
export type Statistics = Models["Statistics"];
export type Step = Models["Step"];
export type Steps = Models["Steps"];
export type TokenProbability = Models["TokenProbability"];
export type AtlasHead = Models["AtlasHead"];
export type Atlas = Models["Atlas"];
/** What the server says while an atlas is still being made. */
export type Pending = Models["Pending"];
export type KnockoutRequest = Models["KnockoutRequest"];
export type Knockout = Models["KnockoutResult"];
export type Evidence = Models["Evidence"];
export type Everywhere = Models["Everywhere"];
export type Sight = Models["Sight"];
export type Sights = Models["Sights"];
export type Said = Models["Said"];
export type Questions = Models["Questions"];
export type Alignment = Models["Alignment"];
export type Distances = Models["Distances"];
export type Verdict = CheckedCell["verdict"];
export type CheckedCell = Models["CheckedCell"];
export type CheckedStep = Models["CheckedStep"];
export type CheckReport = Models["CheckReport"];
export type Job = Models["JobState"];
export type JobRequest =
  | Models["RecordJob"]
  | Models["BookJob"]
  | Models["GenerateJob"]
  | Models["PyramidJob"]
  | Models["KnockoutJob"]
  | Models["AtlasJob"];

export type How = "mean" | "max";

/** One head's map: which recording, which stack of layers, which layer and head. */
export interface MapRef {
  rec: string;
  role: string;
  layer: number;
  head: number;
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

/** Ranges are half open: queries q0 … q1 − 1, keys k0 … k1 − 1. */
export interface Box {
  q0: number;
  q1: number;
  k0: number;
  k1: number;
}

export interface StepsOptions {
  query: number;
  temperature?: number;
  scaled?: boolean;
}

/** One row of a map (`query`) or one column (`key`). */
export type Line = { query: number } | { key: number };

/** A query, a key, or both. */
export interface Pair {
  query?: number | undefined;
  key?: number | undefined;
}

/** A file of a recording, with the name it has there. */
export interface Upload {
  name: string;
  file: Blob;
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
  /** What a visitor may ask of this text, and where the answers are. */
  questions(rec: string, role: string, signal?: AbortSignal): Promise<Questions>;
  /** What the model saw or heard, and which keys of the stack are its patches or frames. */
  pictures(rec: string, role: string, signal?: AbortSignal): Promise<Sights>;
  /** When each token that a model wrote down was said in the sound. */
  said(rec: string, signal?: AbortSignal): Promise<Said>;

  /** Which tokens a stack of another recording has in common with this one. */
  alignment(rec: string, role: string, other: string, signal?: AbortSignal): Promise<Alignment>;
  /** How far every head is from the same head of another recording. */
  distances(rec: string, role: string, other: string, signal?: AbortSignal): Promise<Distances>;
  /** A head's map minus that of another recording, over a rectangle of common tokens, in blocks. */
  difference(map: MapRef, other: string, box: Box, signal?: AbortSignal): Promise<Grid>;

  atlas(rec: string): Promise<Atlas | Pending>;
  knockout(rec: string, request: KnockoutRequest, signal?: AbortSignal): Promise<Knockout>;
  /** Judge printed numbers. */
  check(text: string, signal?: AbortSignal): Promise<CheckReport>;
  workedNames(): Promise<string[]>;
  worked(name: string): Promise<Steps>;

  /** Keep a recording under a name; its new id. */
  keep(rec: string, name: string): Promise<string>;
  /** Remove a recording that was kept. */
  remove(rec: string): Promise<void>;
  /** Open a recording from files, its own or one ZIP file; its id. */
  upload(
    files: readonly Upload[],
    name: string,
    tell: (done: number, total: number) => void,
    signal: AbortSignal,
  ): Promise<string>;

  /** Those that have not ended, in their order. */
  jobs(): Promise<readonly Job[]>;
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
