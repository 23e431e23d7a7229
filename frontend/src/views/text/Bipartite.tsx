import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { formatWeight } from "../../parts/format";
import type { Grid } from "../../source/source";
import { mapRef } from "../../state";
import { TILE } from "../map/geometry";
import type { TextModel } from "./model";

/** Two columns and a line for every weight that can be seen: for a stretch of at most 200 tokens. */

const MOST = 200;
const STEP = 20;
const WIDTH = 560;
const LEFT = 190;
const RIGHT = 370;
const FAINTEST = 0.02;
const MOST_LINES = 2500;

export interface Edge {
  query: number;
  key: number;
  weight: number;
  head: number;
}

/** The stretch shown: it ends a little after the chosen token. */
export function stretch(chosen: number, count: number, length = 60): [start: number, stop: number] {
  const stop = Math.min(count, Math.max(chosen + Math.ceil(length / 4) + 1, Math.min(count, length)));
  return [Math.max(0, stop - Math.min(length, MOST)), stop];
}

/** The heaviest edges of a square of the map, read off level-0 tiles. */
export function edgesOf(tiles: { grid: Grid; row: number; col: number; head: number }[], start: number, stop: number): Edge[] {
  const edges: Edge[] = [];
  for (const { grid, row, col, head } of tiles) {
    const q0 = Math.max(start, row * TILE);
    const k0 = Math.max(start, col * TILE);
    for (let query = q0; query < Math.min(stop, row * TILE + grid.rows); query++) {
      for (let key = k0; key < Math.min(stop, col * TILE + grid.cols); key++) {
        const weight = grid.values[(query - row * TILE) * grid.cols + (key - col * TILE)]!;
        if (weight >= FAINTEST) edges.push({ query, key, weight, head });
      }
    }
  }
  return edges.sort((a, b) => b.weight - a.weight).slice(0, MOST_LINES);
}

export function Bipartite({ model }: { model: TextModel }) {
  const { tokens, stack } = model.open;
  const count = Math.min(stack.queries, stack.keys);
  const length = useSignal(60);
  const over = useSignal<{ side: "query" | "key"; index: number } | null>(null);
  const edges = useSignal<Edge[]>([]);
  const chosen = Math.min(count - 1, Math.max(0, (model.chosen.value ?? 0) - model.shift));
  const [start, stop] = stretch(chosen, count, length.value);
  const all = model.heads.value !== "one";
  const map = mapRef(model.state);

  useEffect(() => {
    let current = true;
    const heads = all ? Array.from({ length: stack.heads }, (_, i) => i) : [map.head];
    const blocks: [number, number][] = [];
    for (let row = Math.floor(start / TILE); row * TILE < stop; row++) {
      for (let col = Math.floor(start / TILE); col * TILE < stop; col++) blocks.push([row, col]);
    }
    const asked = heads.flatMap((head) =>
      blocks.map(async ([row, col]) => ({
        grid: await model.source.tile({ ...map, head }, { level: 0, row, col, how: "mean" }),
        row,
        col,
        head,
      })),
    );
    Promise.all(asked)
      .then((tiles) => {
        if (current) edges.value = edgesOf(tiles, start, stop);
      })
      .catch((error: unknown) => {
        if (current) model.failure.value = error instanceof Error ? error.message : String(error);
      });
    return () => {
      current = false;
    };
  }, [start, stop, all, map.layer, map.head, map.role]);

  const y = (i: number): number => (i - start) * STEP + STEP / 2;
  const shown = useMemo(() => visible(edges.value, over.value), [edges.value, over.value]);
  const pick = (side: "query" | "key", index: number) => ({
    onPointerEnter: () => (over.value = { side, index }),
    onPointerLeave: () => (over.value = null),
    onClick: () => model.choose(index + (side === "query" ? model.shift : 0)),
  });
  return (
    <div class="bipartite" data-testid="lines">
      <label class="bipartite-length">
        {stop - start} tokens
        <input type="range" min={10} max={Math.min(MOST, count)} value={length.value} aria-label="Tokens shown" onInput={(event) => (length.value = Number(event.currentTarget.value))} />
        {all && <span class="soft small">a colour for each head</span>}
      </label>
      <svg viewBox={`0 -24 ${WIDTH} ${(stop - start) * STEP + 30}`} width={WIDTH} role="img" aria-label={`Lines from queries to keys for tokens ${start} to ${stop - 1}`}>
        <text x={LEFT - 8} y={-8} class="column-name query" text-anchor="end">query</text>
        <text x={RIGHT + 8} y={-8} class="column-name key">key</text>
        {shown.map(({ query, key, weight, head }) => (
          <path
            key={`${head} ${query} ${key}`}
            class="edge"
            d={`M${LEFT},${y(query)}C${(LEFT + RIGHT) / 2},${y(query)} ${(LEFT + RIGHT) / 2},${y(key)} ${RIGHT},${y(key)}`}
            stroke={all ? headColour(head, stack.heads) : "var(--accent)"}
            stroke-width={0.6 + 3 * weight}
            opacity={Math.min(1, 0.12 + weight)}
          >
            <title>{`${tokens.label(query + model.shift)} → ${tokens.label(key)}: ${formatWeight(weight)}`}</title>
          </path>
        ))}
        {Array.from({ length: stop - start }, (_, offset) => {
          const i = start + offset;
          return (
            <g key={i}>
              <text x={LEFT - 8} y={y(i)} text-anchor="end" class={`end ${i === chosen ? "chosen" : ""}`} {...pick("query", i)}>
                {tokens.label(i + model.shift)}
              </text>
              <text x={RIGHT + 8} y={y(i)} class="end" {...pick("key", i)}>
                {tokens.label(i)}
              </text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

function visible(edges: readonly Edge[], over: { side: "query" | "key"; index: number } | null): readonly Edge[] {
  return over ? edges.filter((edge) => edge[over.side] === over.index) : edges;
}

/** Hues as far apart as the number of heads allows, of one lightness. */
export function headColour(head: number, heads: number): string {
  return `oklch(62% 0.16 ${Math.round((head * 360) / heads + 20)})`;
}
