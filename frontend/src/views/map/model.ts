import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";

import type { Open } from "../../context";
import { brightest, type ColourScale, scaleFor } from "../../parts/colour";
import { Keyed, keyOf } from "../../parts/keyed";
import type { Thumbs } from "../../parts/thumbs";
import type { Box, Grid, MapRef, Source } from "../../source/source";
import { mapRef, type ViewState } from "../../state";
import { findSections, type Section } from "./axes";
import { blockOf, type Camera, drawnLevel, isNear, type MaskShape, middleCell, TILE, topLevel } from "./geometry";
import type { Overlays, Spot } from "./overlay";
import type { MapStage } from "./stage";
import { TileStore } from "./store";

/** Everything the parts of the map view share: one camera, one cross-hair, one colour scale, one store of tiles. */
export class MapModel {
  readonly store: TileStore;
  readonly sections: Section[];
  readonly querySections: Section[];
  readonly camera = signal<Camera | null>(null);
  readonly hover = signal<Spot | null>(null);
  readonly brushing = signal(false);
  readonly failure = signal<string | null>(null);
  /** Counts up when the reader wants what failed to be tried again. */
  readonly attempt = signal(0);
  readonly causal = signal<boolean | null>(null);
  /** The heaviest value of the overview; the top of the scale until the reader sets another. */
  readonly peak = signal(1);
  readonly pinned: ReadonlySignal<Spot | null>;
  readonly box: Signal<Box | null>;
  readonly overlays: ReadonlySignal<Overlays>;
  readonly colours: ReadonlySignal<ColourScale>;
  /** The kind whose evidence is marked, "" for none; and the marked cells, once they are known. */
  readonly kind: Signal<string>;
  readonly marked = new Keyed<readonly Spot[]>();
  /** What patches and frames show, for the axes; null where tokens are words. */
  readonly thumbs = signal<Thumbs | null>(null);
  /** The head shown beside the first, if any. */
  readonly beside: ReadonlySignal<MapRef | null>;
  /** The pane that moves; the others follow it. */
  leader: MapStage | null = null;
  readonly stages = new Set<MapStage>();
  private rest: { x: number | null; y: number | null; z: number | null } | null = null;

  constructor(
    readonly source: Source,
    readonly state: ViewState,
    readonly open: Open,
  ) {
    this.store = new TileStore(source);
    this.sections = findSections(open.tokens, open.stack.documents);
    const { apart, shift } = open;
    const shifted = this.sections.filter(({ at }) => at >= shift).map((s) => ({ ...s, at: s.at - shift }));
    this.querySections = apart ? findSections(open.queryTokens, []) : shifted;
    this.pinned = computed(() => spotOf(state, open));
    this.box = boxSignal(state);
    const lines = state.param("lines", "w");
    this.overlays = computed(() => ({
      window: lines.value.includes("w"),
      sink: lines.value.includes("s"),
      documents: lines.value.includes("d"),
    }));
    this.kind = state.param("mark");
    const beside = state.param("beside");
    this.beside = computed(() => {
      const found = /^(\d+)\.(\d+)$/.exec(beside.value);
      if (!found) return null;
      const [layer, head] = [Number(found[1]), Number(found[2])];
      return open.stack.layers.includes(layer) && head < open.stack.heads ? { ...mapRef(state), layer, head } : null;
    });
    const bright = state.param("bright");
    this.colours = computed(() =>
      scaleFor(open.stack.keys, state.palette.value, state.scale.value, brightest(bright.value) ?? this.peak.value),
    );
  }

  /** Whether later keys are hidden from a query: said by the recording, or read off one cell. */
  async learnMask(map: MapRef): Promise<void> {
    const { stack } = this.open;
    const first = stack.keys - stack.queries;
    if (stack.causal !== undefined || first < 0 || first + 1 >= stack.keys) {
      this.causal.value = stack.causal ?? false;
      return;
    }
    this.causal.value = !(await this.source.cell(map, 0, first + 1)).visible;
  }

  /** What the queries on the left show: the keys' pictures, unless they are another text. */
  get queryThumbs(): Thumbs | null {
    const thumbs = this.thumbs.value;
    const { apart, shift } = this.open;
    return thumbs && !apart ? (query) => thumbs(query + shift) : null;
  }

  /** The cells of a map that speak for the chosen kind. */
  marks(map: MapRef): readonly Spot[] {
    return (this.kind.value && this.marked.get(keyOf(map, this.kind.value))) || [];
  }

  mask(map: MapRef): MaskShape {
    const { queries, keys, windows } = this.open.stack;
    return { queries, keys, causal: this.causal.value ?? false, window: windows[String(map.layer)] ?? null };
  }

  async learnPeak(map: MapRef): Promise<void> {
    this.peak.value = robustPeak((await this.overview(map)).values);
  }

  /** The whole map in one tile; of a long text nobody has looked at yet this takes a while. */
  overview(map: MapRef): Promise<Grid> {
    const level = topLevel(this.open.stack.queries, this.open.stack.keys);
    return this.store.get(map, this.mask(map), { level, row: 0, col: 0, how: this.state.how.value });
  }

  /** Whether blocks can be shown by their maximum and by their mean: an exported page may hold one of the two. */
  get bothWays(): boolean {
    const { queries, keys } = this.open.stack;
    const map = mapRef(this.state);
    const at = { level: topLevel(queries, keys), row: 0, col: 0 };
    return (["max", "mean"] as const).every((how) => this.store.offers(map, this.mask(map), { ...at, how }));
  }

  /** Whether all cells are at hand, so that any region can be added up. */
  get exact(): boolean {
    const { queries, keys } = this.open.stack;
    const whole = { level: topLevel(queries, keys), row: 0, col: 0, how: "mean" as const };
    return this.source.kind !== "static" || !this.source.offersTile(mapRef(this.state), whole) || whole.level === 0;
  }

  toggle(line: "w" | "s" | "d"): void {
    const lines = this.state.param("lines", "w");
    lines.value = lines.value.includes(line)
      ? lines.value.replace(line, "") || "-"
      : lines.value.replace("-", "") + line;
  }

  /** The block that one colour stands for where a cell is less than a pixel; null where cells can be told apart. */
  blockAt({ query, key }: Spot): Box | null {
    const camera = this.camera.value;
    if (!camera) return null;
    const { queries, keys } = this.open.stack;
    const top = topLevel(queries, keys);
    let level = drawnLevel(camera.scale, top);
    if (this.source.kind === "static") {
      // An exported page may lack the finer tiles: then a coarser block is what is on screen.
      const map = mapRef(this.state);
      const how = this.state.how.value;
      const at = (l: number) => ({
        level: l,
        row: Math.floor(query / (TILE << l)),
        col: Math.floor(key / (TILE << l)),
        how,
      });
      while (level < top && !this.store.offers(map, this.mask(map), at(level))) level++;
    }
    return level === 0 ? null : blockOf(query, key, level, queries, keys);
  }

  /** A click on a cell chooses it, on a block the heaviest of its cells. */
  async choose(map: MapRef, spot: Spot): Promise<void> {
    const block = this.blockAt(spot);
    if (!block) return this.pick(spot);
    const where = (): string => keyOf(mapRef(this.state), this.state.query.peek(), this.state.key.peek());
    const before = where();
    const { max_at } = await this.source.region(map, block);
    // The reader may have gone on meanwhile; of a coarse block in an exported page no cell is known.
    if (where() === before && max_at) this.pick({ query: max_at[0], key: max_at[1] });
  }

  /** A cell's weight from the exact tile that colours it, if that is at hand. */
  exactValue(map: MapRef, query: number, key: number): number | null {
    const [row, col] = [Math.floor(query / TILE), Math.floor(key / TILE)];
    const grid = this.store.peek(map, { level: 0, row, col, how: "mean" });
    return grid?.values[(query - row * TILE) * grid.cols + (key - col * TILE)] ?? null;
  }

  pick(spot: Spot | null): void {
    this.state.go({ query: spot?.query ?? null, key: spot?.key ?? null });
  }

  /** The map has come to rest here, and the address says so; all of it is all of it in a window of any size. */
  settle(camera: Camera, whole: Camera): void {
    const all = isNear(camera, whole);
    this.rest = all ? { x: null, y: null, z: null } : { x: camera.x, y: camera.y, z: Math.log2(camera.scale) };
    this.state.go(this.rest);
  }

  /** Whether the address only says where the map came to rest: by the time that is heard it may have moved on. */
  get echoed(): boolean {
    const { x, y, z } = this.state;
    return this.rest !== null && this.rest.x === x.value && this.rest.y === y.value && this.rest.z === z.value;
  }

  /** Bring a cell to the middle, close enough to read its tokens. */
  center(query: number, key: number, scale?: number, immediately = false): void {
    const leader = this.leader ?? [...this.stages][0];
    if (!leader) return;
    leader.moveTo({ x: key + 0.5, y: query + 0.5, scale: scale ?? Math.max(leader.camera.scale, 24) }, immediately);
  }

  /** Move the cross-hair; the map follows when it would leave the screen. */
  step(dq: number, dk: number): void {
    const camera = this.camera.value;
    const leader = this.leader ?? [...this.stages][0];
    if (!camera || !leader) return;
    const { queries, keys } = this.open.stack;
    const from = this.pinned.value ?? middleCell(camera);
    const stride = Math.max(1, Math.round(12 / camera.scale));
    const clamp = (value: number, count: number): number => Math.min(count - 1, Math.max(0, value));
    const spot = { query: clamp(from.query + dq * stride, queries), key: clamp(from.key + dk * stride, keys) };
    this.pick(spot);
    const { width, height } = leader.size;
    const outside =
      Math.abs(spot.key - camera.x) * camera.scale > width * 0.45 ||
      Math.abs(spot.query - camera.y) * camera.scale > height * 0.45;
    if (outside) leader.moveTo({ x: spot.key + 0.5, y: spot.query + 0.5, scale: camera.scale });
  }
}

/** Nearly the heaviest, rounded up to 1, 2 or 5: the first query's lone weight of 1 must not dim all the others. */
export function robustPeak(values: Float32Array): number {
  const present = values.filter((value) => value > 0).sort();
  const nearly = present[Math.floor(present.length * 0.998)] ?? present[present.length - 1] ?? 1;
  const base = 10 ** Math.floor(Math.log10(nearly));
  return Math.min(1, [1, 2, 5, 10].map((step) => step * base).find((step) => step >= nearly * 0.999) ?? 1);
}

function spotOf(state: ViewState, open: Open): Spot | null {
  const { query, key } = state;
  if (query.value === null || key.value === null) return null;
  return query.value < open.stack.queries && key.value < open.stack.keys
    ? { query: query.value, key: key.value }
    : null;
}

export function parseBox(text: string): Box | null {
  const found = /^(\d+)-(\d+)_(\d+)-(\d+)$/.exec(text);
  if (!found) return null;
  const [q0, q1, k0, k1] = found.slice(1).map(Number) as [number, number, number, number];
  return q0 < q1 && k0 < k1 ? { q0, q1, k0, k1 } : null;
}

export function printBox(box: Box | null): string {
  return box ? `${box.q0}-${box.q1}_${box.k0}-${box.k1}` : "";
}

/** The marked region, kept in the address as `box=q0-q1_k0-k1`. */
function boxSignal(state: ViewState): Signal<Box | null> {
  const text = state.param("box");
  const read = computed(() => parseBox(text.value));
  return {
    get value() {
      return read.value;
    },
    set value(box: Box | null) {
      text.value = printBox(box);
    },
    peek: () => read.peek(),
  } as Signal<Box | null>;
}
