import type { Grid, How, MapRef, Source, TileAddress } from "../../source/source";
import { type MaskShape, tileAllowed, tileShape } from "./geometry";

/** Float tiles by address, the least recently used forgotten first; a change of colours then asks nobody. */
export class TileStore {
  private readonly kept = new Map<string, Grid>();
  private readonly coming = new Map<string, Promise<Grid>>();
  /** How many tiles were asked of the source, for tests and for the curious. */
  fetched = 0;

  constructor(
    private readonly source: Source,
    private readonly most = 320,
  ) {}

  private key(map: MapRef, at: TileAddress): string {
    // Level 0 is exact, so mean and max are the same there.
    const how: How | "" = at.level === 0 ? "" : at.how;
    return `${map.rec} ${map.role} ${map.layer} ${map.head} ${at.level} ${at.row} ${at.col} ${how}`;
  }

  peek(map: MapRef, at: TileAddress): Grid | undefined {
    return this.kept.get(this.key(map, at));
  }

  get(map: MapRef, mask: MaskShape, at: TileAddress): Promise<Grid> {
    const key = this.key(map, at);
    const known = this.kept.get(key);
    if (known) {
      this.kept.delete(key);
      this.kept.set(key, known);
      return Promise.resolve(known);
    }
    const waiting = this.coming.get(key);
    if (waiting) return waiting;
    const asked = this.ask(map, mask, at)
      .then((grid) => {
        this.keep(key, grid);
        return grid;
      })
      .finally(() => this.coming.delete(key));
    this.coming.set(key, asked);
    return asked;
  }

  private ask(map: MapRef, mask: MaskShape, at: TileAddress): Promise<Grid> {
    if (!tileAllowed(mask, at.level, at.row, at.col)) {
      const { rows, cols } = tileShape(mask, at.level, at.row, at.col);
      return Promise.resolve({ rows, cols, values: new Float32Array(rows * cols) });
    }
    this.fetched++;
    return this.source.tile(map, { ...at, how: at.level === 0 ? "mean" : at.how });
  }

  private keep(key: string, grid: Grid): void {
    this.kept.set(key, grid);
    while (this.kept.size > this.most) {
      const oldest = this.kept.keys().next().value;
      if (oldest === undefined) break;
      this.kept.delete(oldest);
    }
  }
}
