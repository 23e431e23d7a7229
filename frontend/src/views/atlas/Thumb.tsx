/** One head's whole map as a small picture, fetched when it comes into view. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type ColourScale, paint } from "../../parts/colour";
import { keyOf } from "../../parts/keyed";
import { Queue } from "../../parts/queue";
import type { Grid, How, MapRef, Source } from "../../source/source";
import { allowedKeys, type MaskShape } from "../map/geometry";

export const SIZE = 64;
interface Asked {
  grid: Promise<Grid>;
  /** Whether there is an answer already, or still will be one. */
  good(): boolean;
}

const kept = new WeakMap<Source, Map<string, Asked>>();

export interface ThumbProps {
  source: Source;
  map: MapRef;
  mask: MaskShape;
  how: How;
  scale: ColourScale;
  /** Fetch it, seen or not: a picture of the whole page is about to be taken. */
  now: boolean;
}

export function Thumb({ source, map, mask, how, scale, now }: ThumbProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { rec, role, layer, head } = map;
  const question = keyOf(rec, role, layer, head, how);
  const [answered, setAnswered] = useState<{ question: string; grid: Grid | null } | null>(null);
  const grid = answered?.question === question ? answered.grid : null;
  const failed = answered?.question === question && answered.grid === null;

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    let stop: AbortController | null = null;
    const fetch = (): void => {
      const asked = new AbortController();
      stop = asked;
      const answer = (found: Grid | null): void => {
        if (asked.signal.aborted) return;
        watcher.disconnect();
        setAnswered({ question, grid: found });
      };
      fetchThumb(source, { rec, role, layer, head }, how, asked.signal).then(answer, () => answer(null));
    };
    // What is scrolled out of sight gives up its place: the pictures on the screen come first.
    const watcher = new IntersectionObserver(
      (seen) => {
        const visible = seen.at(-1)!.isIntersecting;
        if (visible && !stop) fetch();
        if (!visible) {
          stop?.abort();
          stop = null;
        }
      },
      { rootMargin: "120px" },
    );
    if (now) fetch();
    else watcher.observe(element);
    return () => {
      stop?.abort();
      watcher.disconnect();
    };
  }, [source, rec, role, layer, head, how, now]);

  useEffect(() => {
    if (grid && canvas.current) draw(canvas.current, grid, mask, scale);
  }, [grid, scale.palette, scale.scale, scale.low, scale.high]);

  const state = failed ? "failed" : grid ? "ready" : "waiting";
  return (
    <canvas
      ref={canvas}
      class="thumb"
      data-state={state}
      width={grid?.cols ?? 1}
      height={grid?.rows ?? 1}
      aria-hidden="true"
    />
  );
}

/** At most four at once: of a long text each may need an overview first, and a server lets few jobs wait. */
const queue = new Queue(4);

function fetchThumb(source: Source, map: MapRef, how: How, signal: AbortSignal): Promise<Grid> {
  let known = kept.get(source);
  if (!known) {
    known = new Map();
    kept.set(source, known);
  }
  const key = `${map.rec} ${map.role} ${map.layer} ${map.head} ${how}`;
  const found = known.get(key);
  // One that was taken back while it waited for its turn fails only then: meanwhile it may be wanted again.
  if (found?.good()) return found.grid;
  const grid = queue.add(() => source.thumb(map, SIZE, how, signal), signal);
  let here = false;
  const asked: Asked = { grid, good: () => here || !signal.aborted };
  const forget = (): void => {
    if (known.get(key) === asked) known.delete(key); // so that a later look asks again
  };
  grid.then(() => {
    here = true;
  }, forget);
  known.set(key, asked);
  return grid;
}

function draw(canvas: HTMLCanvasElement, grid: Grid, mask: MaskShape, scale: ColourScale): void {
  canvas.width = grid.cols;
  canvas.height = grid.rows;
  const context = canvas.getContext("2d");
  if (!context) return;
  const image = context.createImageData(grid.cols, grid.rows);
  const pixels = new Uint32Array(image.data.buffer);
  paint(grid.values, pixels, scale);
  clear(pixels, grid, mask);
  context.putImageData(image, 0, 0);
}

/** Leave out what the mask forbids: blocks in which no pair may attend. */
function clear(pixels: Uint32Array, { rows, cols }: Grid, mask: MaskShape): void {
  const [tall, wide] = [Math.ceil(mask.queries / rows), Math.ceil(mask.keys / cols)];
  for (let r = 0; r < rows; r++) {
    const [start, stop] = allowedKeys(mask, r * tall, (r + 1) * tall);
    pixels.fill(0, r * cols, r * cols + Math.floor(start / wide));
    pixels.fill(0, r * cols + Math.min(cols, Math.ceil(stop / wide)), (r + 1) * cols);
  }
}
