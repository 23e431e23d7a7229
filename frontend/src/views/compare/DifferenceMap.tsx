import { interpolateRdBu } from "d3-scale-chromatic";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAnswer } from "../../parts/answer";
import { formatNumber, formatWeight } from "../../parts/format";
import { type TokenTable, visible } from "../../parts/tokens";
import type { Alignment, Box, Grid, MapRef, Source } from "../../source/source";
import { useViewState } from "../../state";
import { parseBox, printBox } from "../map/model";
import { Axes } from "./Axes";
import { common, placeOf, zoomed } from "./align";

/** At most so many common tokens a side at once: a picture of more takes the server too long. */
const MOST = 16_384;

export interface DifferenceProps {
  source: Source;
  map: MapRef;
  other: string;
  alignment: Alignment;
  tokens: readonly [TokenTable, TokenTable];
}

/** One head's map in the first recording minus that in the second, on the tokens that both have. */
export function DifferenceMap({ source, map, other, alignment, tokens }: DifferenceProps) {
  const state = useViewState();
  const part = useMemo(() => state.param("part"), [state]);
  const [queries, keys] = [common(alignment.queries), common(alignment.keys)];
  const box = clamped(parseBox(part.value), queries, keys);
  const { rec, role, layer, head } = map;
  const inputs = [source, rec, role, layer, head, other, box.q0, box.q1, box.k0, box.k1];
  const { value, failure } = useAnswer(
    (signal) => source.difference({ rec, role, layer, head }, other, box, signal),
    inputs,
  );
  const [spot, look] = useState<{ row: number; col: number } | null>(null);
  const block = value ? Math.max(1, Math.ceil((box.q1 - box.q0) / value.rows)) : 1;
  const at = value && spot && spot.row < value.rows && spot.col < value.cols ? spot : null;
  const zoom = (by: number, row = at?.row, col = at?.col): void => {
    const middle = (start: number, stop: number, i: number | undefined): number =>
      i === undefined ? (start + stop) / 2 : start + i * block + block / 2;
    const [q0, q1] = zoomed([box.q0, box.q1], middle(box.q0, box.q1, row), by, queries);
    const [k0, k1] = zoomed([box.k0, box.k1], middle(box.k0, box.k1, col), by, keys);
    part.value = printBox({ q0, q1, k0, k1 });
    look(null);
  };
  const onKey = (event: KeyboardEvent): void => {
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    };
    const step = steps[event.key];
    if (step && value) {
      const move = (i: number, by: number, count: number): number => Math.min(count - 1, Math.max(0, i + by));
      look({ row: move(at?.row ?? 0, step[0], value.rows), col: move(at?.col ?? 0, step[1], value.cols) });
    } else if (event.key === "+" || event.key === "=") zoom(1 / 4);
    else if (event.key === "-") zoom(4);
    else if (event.key === "0") part.value = "";
    else return;
    event.preventDefault();
  };
  const live = source.kind !== "static";
  return (
    <figure class="difference">
      <figcaption>
        <span>
          Layer {layer}, head {head}: first minus second, tokens {box.q0}–{box.q1 - 1} × {box.k0}–{box.k1 - 1} of those
          in both
        </span>
        {live && (
          <span class="segmented" role="group" aria-label="Zoom">
            <button type="button" data-testid="difference-in" onClick={() => zoom(1 / 4)}>
              closer
            </button>
            <button type="button" onClick={() => zoom(4)}>
              wider
            </button>
            <button type="button" data-testid="difference-all" onClick={() => (part.value = "")}>
              all
            </button>
          </span>
        )}
      </figcaption>
      {failure && (
        <p class="failure small" role="alert">
          {failure}
        </p>
      )}
      <Axes box={box} alignment={alignment} tokens={tokens[0]}>
        <Picture
          grid={value}
          at={at}
          onLook={look}
          onPick={(row, col) => (live && block > 1 ? zoom(1 / 4, row, col) : look({ row, col }))}
          onKey={onKey}
        />
      </Axes>
      <Ends top={value ? largest(value) : 0} />
      <Readout
        source={source}
        map={map}
        other={other}
        alignment={alignment}
        tokens={tokens}
        box={box}
        grid={value}
        at={at}
        block={block}
      />
    </figure>
  );
}

function clamped(box: Box | null, queries: number, keys: number): Box {
  if (!box) return { q0: 0, q1: Math.min(queries, MOST), k0: 0, k1: Math.min(keys, MOST) };
  const { q0, q1, k0, k1 } = box;
  const fits = q1 <= queries && k1 <= keys && q1 - q0 <= MOST && k1 - k0 <= MOST;
  return fits ? box : clamped(null, queries, keys);
}

function largest(grid: Grid): number {
  let top = 0;
  for (const value of grid.values) top = Math.max(top, Math.abs(value));
  return top;
}

/** Small differences must be seen beside large ones: colours go by the square root. */
export function shade(value: number, top: number): number {
  return 0.5 + (Math.sign(value) * Math.sqrt(Math.min(1, Math.abs(value) / (top || 1)))) / 2;
}

interface PictureProps {
  grid: Grid | null;
  at: { row: number; col: number } | null;
  onLook(at: { row: number; col: number } | null): void;
  onPick(row: number, col: number): void;
  onKey(event: KeyboardEvent): void;
}

function Picture({ grid, at, onLook, onPick, onKey }: PictureProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context || !grid) return;
    canvas.current.width = grid.cols;
    canvas.current.height = grid.rows;
    const image = context.createImageData(grid.cols, grid.rows);
    const top = largest(grid);
    grid.values.forEach((value, i) => {
      const [r = 0, g = 0, b = 0] = interpolateRdBu(1 - shade(value, top))
        .match(/\d+/g)!
        .map(Number);
      image.data.set([r, g, b, 255], 4 * i);
    });
    context.putImageData(image, 0, 0);
  }, [grid]);
  const cell = (event: PointerEvent | MouseEvent): { row: number; col: number } | null => {
    const rect = canvas.current?.getBoundingClientRect();
    if (!grid || !rect) return null;
    const row = Math.floor(((event.clientY - rect.top) / rect.height) * grid.rows);
    const col = Math.floor(((event.clientX - rect.left) / rect.width) * grid.cols);
    return row >= 0 && col >= 0 && row < grid.rows && col < grid.cols ? { row, col } : null;
  };
  return (
    <div
      class="difference-picture"
      role="application"
      tabIndex={0}
      aria-label="Difference of two maps. Arrow keys choose a cell, plus and minus zoom, zero shows all."
      aria-busy={grid === null}
      data-testid="difference"
      onKeyDown={onKey}
      onPointerMove={(event) => event.pointerType === "mouse" && onLook(cell(event))}
      onClick={(event) => {
        const found = cell(event);
        if (found) onPick(found.row, found.col);
      }}
    >
      <canvas ref={canvas} width={1} height={1} aria-hidden="true" />
      {grid && at && (
        <i
          class="difference-spot"
          style={{
            left: `${(at.col / grid.cols) * 100}%`,
            top: `${(at.row / grid.rows) * 100}%`,
            width: `${100 / grid.cols}%`,
            height: `${100 / grid.rows}%`,
          }}
        />
      )}
    </div>
  );
}

function Ends({ top }: { top: number }) {
  return (
    <p class="difference-ends small soft">
      <span>more in the second (−{formatNumber(top)})</span>
      <i
        aria-hidden="true"
        style={{
          background: `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((t) => interpolateRdBu(1 - t)).join(",")})`,
        }}
      />
      <span>more in the first ({formatNumber(top)})</span>
    </p>
  );
}

interface ReadoutProps extends DifferenceProps {
  box: Box;
  grid: Grid | null;
  at: { row: number; col: number } | null;
  block: number;
}

function Readout({ source, map, other, alignment, tokens, box, grid, at, block }: ReadoutProps) {
  const [query, key] = at ? [box.q0 + at.row * block, box.k0 + at.col * block] : [0, 0];
  const [q, k] = [placeOf(alignment.queries, query), placeOf(alignment.keys, key)];
  const exact = at !== null && block === 1;
  const { rec, role, layer, head } = map;
  const { value } = useAnswer(
    !exact || source.kind === "static"
      ? null
      : (signal) =>
          Promise.all([
            source.cell({ rec, role, layer, head }, q[0], k[0], signal),
            source.cell({ rec: other, role, layer, head }, q[1], k[1], signal),
          ]),
    [source, rec, other, role, layer, head, exact, query, key],
  );
  if (!grid || !at)
    return <p class="small soft difference-said">Point at the picture, or move there with the arrow keys.</p>;
  const apart = grid.values[at.row * grid.cols + at.col] ?? 0;
  const say = (side: 0 | 1): string =>
    `${side ? "second" : "first"}: query ${q[side]} “${visible(tokens[side].raw(q[side]))}” → key ${k[side]} “${visible(tokens[side].raw(k[side]))}”`;
  return (
    <p class="small difference-said" data-testid="difference-said">
      <b class="number" data-value={apart}>
        {formatNumber(apart, 3)}
      </b>{" "}
      {exact ? "" : `is the largest difference among ${block} × ${block} cells from `}
      {say(0)} {value && <b>{formatWeight(value[0].weight)}</b>}; {say(1)}{" "}
      {value && <b>{formatWeight(value[1].weight)}</b>}
    </p>
  );
}
