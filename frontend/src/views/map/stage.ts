import OpenSeadragon from "openseadragon";

import type { ColourScale } from "../../parts/colour";
import type { Box } from "../../source/source";
import { type Camera, fit, type Size, showsAll, toCell, toScreen } from "./geometry";
import type { Spot } from "./overlay";
import type { MapTiles } from "./tiles";

export interface StageHooks {
  onCamera(camera: Camera): void;
  onRest(camera: Camera): void;
  onHover(spot: Spot | null): void;
  onPick(spot: Spot): void;
  onBrush(box: Box, done: boolean): void;
  /** Whether a drag marks a region instead of moving the map. */
  brushing(): boolean;
}

/** OpenSeadragon's viewer spoken to in cells: a camera over one map, with gestures turned into cells and regions. */
export class MapStage {
  private readonly viewer: OpenSeadragon.Viewer;
  private tiles: MapTiles | null = null;
  private moving = false;
  private image: OpenSeadragon.TiledImage | null = null;
  private placed = false;
  /** Whether the viewer is destroyed: what is still under way then must leave it alone. */
  private gone = false;
  private last: Camera | null = null;
  private lastSize: Size | null = null;
  private smooth: boolean | null = null;
  private brushStart: [query: number, key: number] | null = null;

  constructor(
    private readonly host: HTMLElement,
    private readonly hooks: StageHooks,
    private readonly shape: { queries: number; keys: number },
  ) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.viewer = new OpenSeadragon.Viewer({
      element: host,
      drawer: "canvas",
      tabIndex: -1,
      showNavigationControl: false,
      animationTime: still ? 0 : 0.45,
      springStiffness: 9,
      minPixelRatio: 1,
      maxZoomPixelRatio: 96,
      minZoomImageRatio: 0.6,
      visibilityRatio: 0.4,
      zoomPerScroll: 1.25,
      blendTime: 0,
      imageLoaderLimit: 4,
      maxImageCacheCount: 240,
      preserveImageSizeOnResize: true,
      subPixelRoundingForTransparency: OpenSeadragon.SUBPIXEL_ROUNDING_OCCURRENCES.ALWAYS,
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
      gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true, flickEnabled: true },
      gestureSettingsPen: { clickToZoom: false },
    } as object as OpenSeadragon.Options); // the published types lack the drawer's numbers
    this.listen();
  }

  get size(): Size {
    return { width: this.host.clientWidth, height: this.host.clientHeight };
  }

  get camera(): Camera {
    const { viewport } = this.viewer;
    const centre = viewport.getCenter(true);
    const keys = this.shape.keys;
    const scale = (viewport.getZoom(true) * viewport.getContainerSize().x) / keys;
    return { x: centre.x * keys, y: centre.y * keys, scale };
  }

  moveTo(camera: Camera, immediately = false): void {
    const { viewport } = this.viewer;
    const keys = this.shape.keys;
    const zoom = (camera.scale * keys) / Math.max(1, viewport.getContainerSize().x);
    viewport.zoomTo(zoom, undefined, immediately);
    viewport.panTo(new OpenSeadragon.Point(camera.x / keys, camera.y / keys), immediately);
    if (immediately) this.tell();
  }

  zoomBy(factor: number, at?: Spot): void {
    const keys = this.shape.keys;
    const point = at && new OpenSeadragon.Point((at.key + 0.5) / keys, (at.query + 0.5) / keys);
    this.viewer.viewport.zoomBy(factor, point);
    this.viewer.viewport.applyConstraints();
  }

  whole(): Camera {
    return fit(this.shape.queries, this.shape.keys, this.size);
  }

  /** Take the picture away at once: another head is named, and its own is still to come. */
  blank(): void {
    this.tiles = null;
    if (this.gone) return;
    this.image?.setOpacity(0);
    this.viewer.forceRedraw();
  }

  /** Show a head, statistic or recording under the same camera; finer tiles of the same map replace the coarse ones. */
  show(tiles: MapTiles, camera: Camera | null): void {
    const old = this.image;
    const first = !this.placed;
    this.tiles = tiles;
    this.viewer.addTiledImage({
      tileSource: tiles,
      x: 0,
      y: 0,
      width: 1,
      clip: new OpenSeadragon.Rect(0, 0, this.shape.keys, this.shape.queries),
      success: (event: Event) => {
        const image = (event as unknown as { item: OpenSeadragon.TiledImage }).item;
        if (this.gone) return;
        if (this.tiles !== tiles) {
          this.viewer.world.removeItem(image);
          return;
        }
        this.image = image;
        if (first) this.moveTo(camera ?? this.whole(), true);
        this.placed = true;
        if (old) this.retire(old, image);
      },
    });
  }

  private retire(old: OpenSeadragon.TiledImage, next: OpenSeadragon.TiledImage): void {
    const drop = (): void => {
      if (!this.gone && this.viewer.world?.getIndexOfItem(old) >= 0) this.viewer.world.removeItem(old);
    };
    if (next.getFullyLoaded()) drop();
    else next.addHandler("fully-loaded-change", drop);
    setTimeout(drop, 4000);
  }

  recolour(colours: ColourScale): void {
    if (this.gone) return;
    this.tiles?.recolour(colours);
    this.viewer.forceRedraw();
  }

  /** What is drawn now, as a canvas of device pixels. */
  canvas(): HTMLCanvasElement | null {
    const drawn = this.viewer.drawer?.canvas;
    return drawn instanceof HTMLCanvasElement ? drawn : null;
  }

  /** Where a place of the map is in the window. */
  place(query: number, key: number): { x: number; y: number } {
    const rect = this.host.getBoundingClientRect();
    const [x, y] = toScreen(this.camera, this.size, query, key);
    return { x: rect.left + x, y: rect.top + y };
  }

  /** Whether everything that belongs on screen is drawn; a map that still waits for its overview is not. */
  get settled(): boolean {
    if (!this.image?.getFullyLoaded()) return false;
    return this.tiles === this.image.source && this.tiles.drawable(this.camera.scale);
  }

  /** The window has another size: a map that was seen whole stays whole, else the middle stays in the middle. */
  private refit(): void {
    const { last, lastSize } = this;
    const { queries, keys } = this.shape;
    const whole = last !== null && lastSize !== null && showsAll(last, lastSize, queries, keys);
    requestAnimationFrame(() => {
      if (this.gone || !this.viewer.viewport) return;
      if (whole) this.moveTo(this.whole(), true);
      this.tell(true);
    });
  }

  dispose(): void {
    this.gone = true;
    this.viewer.destroy();
    // Tiles that are still on their way ask for a redraw when they arrive, which throws without a viewer.
    this.viewer.forceRedraw = () => this.viewer;
  }

  private listen(): void {
    const viewer = this.viewer;
    viewer.addHandler("update-viewport", () => this.tell());
    viewer.addHandler("resize", () => this.refit());
    viewer.addHandler("animation-start", () => this.move(true));
    viewer.addHandler("animation-finish", () => {
      this.move(false);
      this.hooks.onRest(this.camera);
    });
    viewer.addHandler("canvas-key", (event) => {
      event.preventDefaultAction = true; // the map has keys of its own
    });
    viewer.addHandler("canvas-click", (event) => {
      const spot = event.quick ? this.spotAt(event.position) : null;
      if (spot) this.hooks.onPick(spot);
    });
    viewer.addHandler("canvas-press", (event) => {
      const shift = (event.originalEvent as unknown as PointerEvent).shiftKey;
      this.brushStart = shift || this.hooks.brushing() ? this.cellAt(event.position) : null;
    });
    viewer.addHandler("canvas-drag", (event) => {
      if (!this.brushStart) return;
      event.preventDefaultAction = true;
      this.brush(event.position, false);
    });
    viewer.addHandler("canvas-drag-end", (event) => {
      if (!this.brushStart) return;
      event.preventDefaultAction = true;
      this.brush(event.position, true);
      this.brushStart = null;
    });
    this.host.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch" || event.buttons !== 0) return;
      const rect = this.host.getBoundingClientRect();
      this.hooks.onHover(this.spotAt({ x: event.clientX - rect.left, y: event.clientY - rect.top }));
    });
    this.host.addEventListener("pointerleave", () => this.hooks.onHover(null));
  }

  /** Pixels of the screen to one of the page; while the map moves nobody sees more than one, and four cost four times. */
  get ratio(): number {
    return this.moving ? 1 : devicePixelRatio || 1;
  }

  private move(moving: boolean): void {
    this.moving = moving;
    if (this.gone || OpenSeadragon.pixelDensityRatio === this.ratio) return;
    (OpenSeadragon as { pixelDensityRatio: number }).pixelDensityRatio = this.ratio; // its types say that nobody may
    this.viewer.forceRedraw();
    this.tell(true);
  }

  private tell(always = false): void {
    if (this.gone || !this.viewer.viewport) return;
    const now = this.camera;
    const { last } = this;
    if (!always && last && last.x === now.x && last.y === now.y && last.scale === now.scale) return;
    this.last = now;
    const { x: width, y: height } = this.viewer.viewport.getContainerSize();
    this.lastSize = { width, height };
    // Between one and two device pixels a cell cannot be a square; from two on it is one, with sharp edges.
    const smooth = now.scale * this.ratio < 2;
    if (smooth !== this.smooth && this.viewer.drawer) {
      this.smooth = smooth;
      this.viewer.drawer.setImageSmoothingEnabled(smooth);
    }
    this.hooks.onCamera(now);
  }

  private cellAt(point: { x: number; y: number }): [query: number, key: number] {
    return toCell(this.camera, this.size, point.x, point.y);
  }

  private spotAt(point: { x: number; y: number }): Spot | null {
    const [query, key] = this.cellAt(point).map(Math.floor) as [number, number];
    const { queries, keys } = this.shape;
    return query >= 0 && key >= 0 && query < queries && key < keys ? { query, key } : null;
  }

  private brush(point: { x: number; y: number }, done: boolean): void {
    const [qa, ka] = this.brushStart!;
    const [qb, kb] = this.cellAt(point);
    const clamp = (value: number, most: number): number => Math.min(most, Math.max(0, value));
    const { queries, keys } = this.shape;
    const box: Box = {
      q0: clamp(Math.floor(Math.min(qa, qb)), queries - 1),
      q1: clamp(Math.floor(Math.max(qa, qb)) + 1, queries),
      k0: clamp(Math.floor(Math.min(ka, kb)), keys - 1),
      k1: clamp(Math.floor(Math.max(ka, kb)) + 1, keys),
    };
    if (box.q1 > box.q0 && box.k1 > box.k0) this.hooks.onBrush(box, done);
  }
}
