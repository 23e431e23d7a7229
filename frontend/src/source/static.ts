import { type Archive, unpack } from "../export/archive";
import { mapPath, PathSource, type Request, type Transport, withQuery } from "./paths";
import { type Box, type Cell, type Grid, type MapRef, type Region, SourceError, type Stack } from "./source";

const ABSENT = "This is an exported page: it holds what was on screen when it was made, and not this.";
const TILE = 256;

/** Answers from the data inside an exported page. */
export class StaticTransport implements Transport {
  readonly kind = "static" as const;
  private readonly unpacked = new Map<string, Promise<Grid>>();

  constructor(private readonly archive: Archive) {}

  has(path: string): boolean {
    return path in this.archive.json || path in this.archive.grids;
  }

  json(path: string, request?: Request): Promise<unknown> {
    const known = (request?.method ?? "GET") === "GET" && path in this.archive.json;
    if (!known) return Promise.reject(new SourceError(ABSENT, 404));
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

/** A Source without a server; cells and regions are read off the exact tiles where these were exported. */
export class StaticSource extends PathSource {
  constructor(private readonly archive: StaticTransport) {
    super(archive);
  }

  protected override offers(path: string): boolean {
    return this.archive.has(path);
  }

  override async cell(map: MapRef, query: number, key: number, signal?: AbortSignal): Promise<Cell> {
    if (this.archive.has(withQuery(`${mapPath(map)}/cell`, { query, key }))) return super.cell(map, query, key, signal);
    const stack = await this.stackOf(map);
    const distance = query + stack.keys - stack.queries - key;
    const hidden = { query, key, weight: 0, score: null, log_weight: null, rank: null, visible: false, distance };
    if (!visible(stack, map.layer, query, key)) return hidden;
    const [row, col] = [Math.floor(query / TILE), Math.floor(key / TILE)];
    const grid = await this.tile(map, { level: 0, row, col, how: "mean" });
    const weight = grid.values[(query - row * TILE) * grid.cols + (key - col * TILE)] ?? 0;
    return { ...hidden, weight, log_weight: weight > 0 ? Math.log(weight) : null, visible: true };
  }

  override async region(map: MapRef, box: Box, signal?: AbortSignal): Promise<Region> {
    const { q0, q1, k0, k1 } = box;
    if (this.archive.has(withQuery(`${mapPath(map)}/region`, { q0, q1, k0, k1 })))
      return super.region(map, box, signal);
    const stack = await this.stackOf(map);
    const block = await this.block(map, box, stack);
    if (block) return block;
    const found = { visible: 0, mass: 0, max: 0, max_at: null as [number, number] | null };
    for (let query = q0; query < q1; query++) {
      for (let key = k0; key < k1; key++) {
        if (!visible(stack, map.layer, query, key)) continue;
        found.visible++;
        const { weight } = await this.cell(map, query, key);
        found.mass += weight;
        if (weight > found.max) [found.max, found.max_at] = [weight, [query, key]];
      }
    }
    const cells = (q1 - q0) * (k1 - k0);
    return { ...found, cells, share: found.mass / (q1 - q0), mean: found.mass / cells, entropy_mean: null };
  }

  /** A block of a coarse tile, where the exact cells under it were not exported: its colour, and no place. */
  private async block(map: MapRef, { q0, q1, k0, k1 }: Box, stack: Stack): Promise<Region | null> {
    const level = Math.ceil(Math.log2(Math.max(q1 - q0, k1 - k0)));
    const at = { level, row: Math.floor(q0 / (TILE << level)), col: Math.floor(k0 / (TILE << level)) };
    const values = { mean: NaN, max: NaN };
    for (const how of ["mean", "max"] as const) {
      if (level === 0 || !this.offersTile(map, { ...at, how })) continue;
      const grid = await this.tile(map, { ...at, how });
      values[how] = grid.values[((q0 >> level) % TILE) * grid.cols + ((k0 >> level) % TILE)] ?? NaN;
    }
    if (Number.isNaN(values.mean) && Number.isNaN(values.max)) return null;
    const cells = (q1 - q0) * (k1 - k0);
    let seen = 0;
    for (let query = q0; query < q1; query++)
      for (let key = k0; key < k1; key++) seen += Number(visible(stack, map.layer, query, key));
    const mass = values.mean * cells;
    return { cells, visible: seen, mass, share: mass / (q1 - q0), ...values, max_at: null, entropy_mean: null };
  }

  private async stackOf(map: MapRef): Promise<Stack> {
    const stack = (await this.recording(map.rec)).stacks.find(({ role }) => role === map.role);
    if (!stack) throw new SourceError(ABSENT, 404);
    return stack;
  }
}

/** Whether a pair may attend, as far as an exported page knows. */
function visible({ queries, keys, causal, windows }: Stack, layer: number, query: number, key: number): boolean {
  if (!causal) return true;
  const position = query + keys - queries;
  const window = windows[String(layer)] ?? null;
  return key <= position && (window === null || key > position - window);
}
