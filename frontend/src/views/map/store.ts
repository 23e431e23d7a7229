import { signal } from "@preact/signals";

import type { Grid, How, MapRef, Source, TileAddress } from "../../source/source";
import { COARSE, type MaskShape, tileAllowed, tileShape } from "./geometry";
import { joined, quarters } from "./pooling";

/** Float tiles by address, the least recently used forgotten first; a change of colours then asks nobody. */
export class TileStore {
  private readonly kept = new Map<string, Grid>();
  private readonly coming = new Map<string, Promise<Grid>>();
  private readonly held = new Map<string, { count: number; stop: AbortController }>();
  /** How many tiles were asked of the source, for tests and for the curious. */
  fetched = 0;
  /** Counts up with every tile that comes, for whatever is drawn from tiles. */
  readonly arrived = signal(0);

  constructor(
    private readonly source: Source,
    private readonly most = 320,
  ) {}

  /** A head that is on screen; when the last holder lets go, what it still waits for is taken back. */
  hold(map: MapRef): () => void {
    const held = this.holding(map);
    held.count++;
    return () => {
      if (--held.count > 0) return;
      this.held.delete(nameOf(map));
      held.stop.abort();
    };
  }

  /** Who holds a head; it may be asked about before anybody does. */
  private holding(map: MapRef): { count: number; stop: AbortController } {
    const name = nameOf(map);
    const held = this.held.get(name) ?? { count: 0, stop: new AbortController() };
    this.held.set(name, held);
    return held;
  }

  private key(map: MapRef, at: TileAddress): string {
    // Level 0 is exact, so mean and max are the same there.
    const how: How | "" = at.level === 0 ? "" : at.how;
    return `${nameOf(map)} ${at.level} ${at.row} ${at.col} ${how}`;
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
    const signal = at.level < COARSE ? undefined : this.holding(map).stop.signal;
    // What was taken back must not be handed to whoever asks next.
    signal?.addEventListener("abort", () => this.coming.delete(key), { once: true });
    const asked = this.ask(map, mask, at, signal)
      .then((grid) => {
        this.keep(key, grid);
        return grid;
      })
      .finally(() => {
        if (this.coming.get(key) === asked) this.coming.delete(key);
      });
    this.coming.set(key, asked);
    return asked;
  }

  /** Whether a tile can be had: itself, or made of the finer ones that an exported page holds. */
  offers(map: MapRef, mask: MaskShape, at: TileAddress): boolean {
    if (!tileAllowed(mask, at.level, at.row, at.col)) return true;
    const how = at.level === 0 ? "mean" : at.how;
    if (this.source.offersTile(map, { ...at, how })) return true;
    return at.level > 0 && quarters(mask, at).every((quarter) => this.offers(map, mask, quarter));
  }

  /** A fine tile is kept when it comes, whoever asked for it; a coarse one may have minutes of work before it. */
  private ask(map: MapRef, mask: MaskShape, at: TileAddress, signal?: AbortSignal): Promise<Grid> {
    if (!tileAllowed(mask, at.level, at.row, at.col)) {
      const { rows, cols } = tileShape(mask, at.level, at.row, at.col);
      return Promise.resolve({ rows, cols, values: new Float32Array(rows * cols) });
    }
    if (
      this.source.kind === "static" &&
      !this.source.offersTile(map, { ...at, how: at.level === 0 ? "mean" : at.how })
    ) {
      if (this.offers(map, mask, at)) return this.pooled(map, mask, at);
    }
    this.fetched++;
    return this.source.tile(map, { ...at, how: at.level === 0 ? "mean" : at.how }, signal);
  }

  private async pooled(map: MapRef, mask: MaskShape, at: TileAddress): Promise<Grid> {
    const parts = quarters(mask, at);
    const grids = await Promise.all(parts.map((part) => this.get(map, mask, part)));
    return joined(
      mask,
      at,
      parts.map((part, i) => ({ part, grid: grids[i]! })),
    );
  }

  private keep(key: string, grid: Grid): void {
    this.kept.set(key, grid);
    this.arrived.value++;
    while (this.kept.size > this.most) {
      const oldest = this.kept.keys().next().value;
      if (oldest === undefined) break;
      this.kept.delete(oldest);
    }
  }
}

function nameOf({ rec, role, layer, head }: MapRef): string {
  return `${rec} ${role} ${layer} ${head}`;
}
