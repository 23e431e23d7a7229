import OpenSeadragon from "openseadragon";

import { type ColourScale, paint } from "../../parts/colour";
import type { Grid, How, MapRef, TileAddress } from "../../source/source";
import { COARSE, clearForbidden, type MaskShape, TILE, tileAllowed, topLevel } from "./geometry";
import type { TileStore } from "./store";

type Job = OpenSeadragon.ImageJob & {
  tile: OpenSeadragon.Tile;
  finish(data: unknown, request: unknown, dataType: string): void;
  fail(message: string, request: unknown): void;
};

interface Painted {
  grid: Grid;
  at: TileAddress;
  context: CanvasRenderingContext2D;
}

let made = 0;

/** One head's map as OpenSeadragon sees it: its "image" has one pixel per cell, and tiles are coloured here. */
export class MapTiles extends OpenSeadragon.TileSource {
  readonly top: number;
  private readonly painted = new Map<string, Painted>();
  private readonly name = `map-${++made}`;

  constructor(
    private readonly store: TileStore,
    readonly map: MapRef,
    readonly mask: MaskShape,
    readonly how: How,
    private colours: ColourScale,
    /** Whether the coarse levels can be had yet. */
    private readonly coarse: boolean,
    private readonly onFailure: (error: unknown) => void,
  ) {
    const top = topLevel(mask.queries, mask.keys);
    super({
      width: mask.keys,
      height: mask.queries,
      tileSize: TILE,
      tileOverlap: 0,
      minLevel: 0,
      maxLevel: top,
      ready: true,
    });
    this.top = top;
  }

  /** Whether a map drawn at this many pixels a cell can be had; without the coarse levels only a close one can. */
  drawable(scale: number): boolean {
    return this.coarse || scale * 2 ** (COARSE - 1) >= 1;
  }

  override getTileUrl(level: number, x: number, y: number): string {
    return `${this.name}/${level}/${x}/${y}`;
  }

  override getTileHashKey(level: number, x: number, y: number): string {
    return this.getTileUrl(level, x, y);
  }

  override hasTransparency(): boolean {
    return true;
  }

  override equals(other: OpenSeadragon.TileSource): boolean {
    return other === this;
  }

  override tileExists(level: number, x: number, y: number): boolean {
    const number = this.top - level;
    if (!this.coarse && number >= COARSE) return false;
    if (!super.tileExists(level, x, y) || !tileAllowed(this.mask, number, y, x)) return false;
    return this.store.offers(this.map, this.mask, { level: number, row: y, col: x, how: this.how });
  }

  /** The last block of a level is drawn whole, beyond the map's edge, so that all blocks are of one size. */
  override getTileBounds(level: number, x: number, y: number, isSource?: boolean): OpenSeadragon.Rect {
    const block = 2 ** (this.top - level);
    const wide = Math.min(TILE, Math.ceil(this.mask.keys / block) - x * TILE);
    const high = Math.min(TILE, Math.ceil(this.mask.queries / block) - y * TILE);
    if (isSource) return new OpenSeadragon.Rect(0, 0, wide, high);
    const unit = block / this.mask.keys;
    return new OpenSeadragon.Rect(x * TILE * unit, y * TILE * unit, wide * unit, high * unit);
  }

  override downloadTileStart(context: OpenSeadragon.ImageJob): void {
    const job = context as Job;
    const { level, x, y } = job.tile;
    const at: TileAddress = { level: this.top - level, row: y, col: x, how: this.how };
    this.store
      .get(this.map, this.mask, at)
      .then((grid) => job.finish(this.draw(grid, at), null, "context2d"))
      .catch((error: unknown) => {
        this.onFailure(error);
        job.fail(String(error), null);
      });
  }

  /** A tile that is on its way is kept when it comes: somebody will look there again. */
  override downloadTileAbort(): void {}

  /** Paint everything anew in place; nothing is fetched and nothing flickers. */
  recolour(colours: ColourScale): void {
    this.colours = colours;
    for (const [key, entry] of this.painted) {
      if (entry.context.canvas.width === 0)
        this.painted.delete(key); // OpenSeadragon has let it go
      else this.fill(entry);
    }
  }

  private draw(grid: Grid, at: TileAddress): CanvasRenderingContext2D {
    const canvas = document.createElement("canvas");
    canvas.width = grid.cols;
    canvas.height = grid.rows;
    const context = canvas.getContext("2d");
    if (!context) throw new Error("This browser gives no 2D canvas.");
    const entry = { grid, at, context };
    this.fill(entry);
    this.painted.set(`${at.level}/${at.row}/${at.col}`, entry);
    return context;
  }

  private fill({ grid, at, context }: Painted): void {
    const image = context.createImageData(grid.cols, grid.rows);
    const pixels = new Uint32Array(image.data.buffer);
    paint(grid.values, pixels, this.colours);
    clearForbidden(pixels, grid.rows, grid.cols, this.mask, at);
    context.putImageData(image, 0, 0);
  }
}
