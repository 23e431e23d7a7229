import { type Archive, unpack } from "../export/archive";
import { mapPath, PathSource, type Request, type Transport, withQuery } from "./paths";
import { type Cell, type Grid, type MapRef, SourceError } from "./source";

const ABSENT = "This is an exported page: it holds what was on screen when it was made, and not this.";
const TILE = 256;

/** Answers from the data inside an exported page. */
export class StaticTransport implements Transport {
  readonly kind = "static" as const;
  private readonly unpacked = new Map<string, Promise<Grid>>();

  constructor(private readonly archive: Archive) {}

  has(path: string): boolean {
    return path in this.archive.json;
  }

  json(path: string, request?: Request): Promise<unknown> {
    if ((request?.method ?? "GET") !== "GET" || !this.has(path)) return Promise.reject(new SourceError(ABSENT, 404));
    return Promise.resolve(this.archive.json[path]);
  }

  grid(path: string): Promise<Grid> {
    const packed = this.archive.grids[path];
    if (!packed) return Promise.reject(new SourceError(ABSENT, 404));
    let grid = this.unpacked.get(path);
    if (!grid) {
      grid = unpack(packed);
      this.unpacked.set(path, grid);
    }
    return grid;
  }

  events(): () => void {
    return () => undefined;
  }
}

/** A Source without anybody behind it; a cell is read off the exact tile where one was exported. */
export class StaticSource extends PathSource {
  constructor(private readonly archive: StaticTransport) {
    super(archive);
  }

  override async cell(map: MapRef, query: number, key: number, signal?: AbortSignal): Promise<Cell> {
    if (this.archive.has(withQuery(`${mapPath(map)}/cell`, { query, key }))) return super.cell(map, query, key, signal);
    const [row, col] = [Math.floor(query / TILE), Math.floor(key / TILE)];
    const grid = await this.tile(map, { level: 0, row, col, how: "mean" });
    const weight = grid.values[(query - row * TILE) * grid.cols + (key - col * TILE)] ?? 0;
    const log_weight = weight > 0 ? Math.log(weight) : null;
    return { query, key, weight, score: null, log_weight, rank: null, visible: weight > 0, distance: query - key };
  }
}
