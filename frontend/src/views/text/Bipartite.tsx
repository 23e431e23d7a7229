import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { sentence } from "../../parts/answer";
import { formatWeight } from "../../parts/format";
import { Keyed, keyOf } from "../../parts/keyed";
import type { Grid } from "../../source/source";
import { mapRef } from "../../state";
import { TILE } from "../map/geometry";
import type { TextModel } from "./model";

/** Two columns and a line for every weight that can be seen: for a stretch of at most 200 tokens. */

const NONE: readonly Edge[] = [];
const MOST = 200;
/** Tokens shown unless the reader wants more or fewer. */
export const LENGTH = 60;
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
export function stretch(chosen: number, count: number, length = LENGTH): [start: number, stop: number] {
  const stop = Math.min(count, Math.max(chosen + Math.ceil(length / 4) + 1, Math.min(count, length)));
  return [Math.max(0, stop - Math.min(length, MOST)), stop];
}

/** Half open. */
type Range = [start: number, stop: number];

/** The queries and keys beside each other: the same tokens, or, of two texts, those around what is chosen and lit. */
export function stretches(model: TextModel, token: number, length: number): { queries: Range; keys: Range } {
  const { apart, shift, stack } = model.open;
  if (!apart) {
    const count = Math.min(stack.queries, stack.keys);
    const both = stretch(Math.min(count - 1, Math.max(0, token - shift)), count, length);
    return { queries: both, keys: both };
  }
  const back = model.direction.value === "queries";
  const other = model.top.value[0]?.index ?? 0;
  return {
    queries: stretch(back ? other : token, stack.queries, length),
    keys: stretch(back ? token : other, stack.keys, length),
  };
}

/** The rows and columns of level-0 tiles under two stretches. */
export function blocksOf({ queries, keys }: { queries: Range; keys: Range }): { rows: number[]; cols: number[] } {
  const under = ([start, stop]: Range): number[] => {
    const first = Math.floor(start / TILE);
    return Array.from({ length: Math.ceil(stop / TILE) - first }, (_, i) => first + i);
  };
  return { rows: under(queries), cols: under(keys) };
}

/** The heaviest edges of a part of the map, read off level-0 tiles. */
export function edgesOf(
  tiles: { grid: Grid; row: number; col: number; head: number }[],
  queries: Range,
  keys: Range,
): Edge[] {
  const edges: Edge[] = [];
  for (const { grid, row, col, head } of tiles) {
    const q0 = Math.max(queries[0], row * TILE);
    const k0 = Math.max(keys[0], col * TILE);
    for (let query = q0; query < Math.min(queries[1], row * TILE + grid.rows); query++) {
      for (let key = k0; key < Math.min(keys[1], col * TILE + grid.cols); key++) {
        const weight = grid.values[(query - row * TILE) * grid.cols + (key - col * TILE)]!;
        if (weight >= FAINTEST) edges.push({ query, key, weight, head });
      }
    }
  }
  return edges.sort((a, b) => b.weight - a.weight).slice(0, MOST_LINES);
}

export function Bipartite({ model }: { model: TextModel }) {
  const { tokens, queryTokens, stack } = model.open;
  const length = useSignal(LENGTH);
  const over = useSignal<{ side: "query" | "key"; index: number } | null>(null);
  const answered = useMemo(() => new Keyed<Edge[]>(), []);
  const failed = useMemo(() => new Keyed<string>(), []);
  const { queries, keys } = stretches(model, model.chosen.value ?? 0, length.value);
  const all = model.heads.value !== "one";
  const map = mapRef(model.state);
  const back = model.direction.value === "queries";

  const question = keyOf(map, all, queries, keys);
  const edges = answered.get(question) ?? NONE;

  useEffect(() => {
    let current = true;
    const heads = all ? Array.from({ length: stack.heads }, (_, i) => i) : [map.head];
    const { rows, cols } = blocksOf({ queries, keys });
    const asked = heads.flatMap((head) =>
      rows.flatMap((row) =>
        cols.map(async (col) => ({
          grid: await model.source.tile({ ...map, head }, { level: 0, row, col, how: "mean" }),
          row,
          col,
          head,
        })),
      ),
    );
    Promise.all(asked)
      .then((tiles) => {
        if (current) answered.set(question, edgesOf(tiles, queries, keys));
      })
      .catch((error: unknown) => {
        if (current) failed.set(question, sentence(error));
      });
    return () => {
      current = false;
    };
  }, [question]);

  const shown = useMemo(() => visible(edges, over.value), [edges, over.value]);
  const high = Math.max(queries[1] - queries[0], keys[1] - keys[0]);
  const from = (query: number): number => (query - queries[0]) * STEP + STEP / 2;
  const to = (key: number): number => (key - keys[0]) * STEP + STEP / 2;
  const chosen = (model.chosen.value ?? -1) - (back ? 0 : model.shift);
  const pick = (side: "query" | "key", index: number) => ({
    onPointerEnter: () => (over.value = { side, index }),
    onPointerLeave: () => (over.value = null),
    onClick: () => {
      const own = side === (back ? "key" : "query");
      if (model.open.apart && !own) model.follow(index);
      else model.choose(index + (side === "query" ? model.shift : 0));
    },
  });
  const column = (side: "query" | "key", [start, stop]: Range) =>
    Array.from({ length: stop - start }, (_, offset) => {
      const i = start + offset;
      const own = side === (back ? "key" : "query");
      const place =
        side === "query" ? { x: LEFT - 8, y: from(i), "text-anchor": "end" as const } : { x: RIGHT + 8, y: to(i) };
      return (
        <text key={`${side} ${i}`} {...place} class={`end ${own && i === chosen ? "chosen" : ""}`} {...pick(side, i)}>
          {(side === "query" ? queryTokens : tokens).label(i)}
        </text>
      );
    });
  return (
    <div class="bipartite" data-testid="lines">
      <div class="bipartite-length">
        {high} tokens
        {model.source.kind !== "static" && (
          <input
            type="range"
            min={10}
            max={Math.min(MOST, Math.max(stack.queries, stack.keys))}
            value={length.value}
            aria-label="Tokens shown"
            onInput={(event) => (length.value = Number(event.currentTarget.value))}
          />
        )}
        {all && <span class="soft small">a colour for each head</span>}
      </div>
      {failed.get(question) && <p class="small failure">{failed.get(question)}</p>}
      <svg
        viewBox={`0 -24 ${WIDTH} ${high * STEP + 30}`}
        width={WIDTH}
        role="img"
        aria-label={`Lines from queries ${queries[0]} to ${queries[1] - 1} to keys ${keys[0]} to ${keys[1] - 1}`}
      >
        <text x={LEFT - 8} y={-8} class="column-name query" text-anchor="end">
          query
        </text>
        <text x={RIGHT + 8} y={-8} class="column-name key">
          key
        </text>
        {shown.map(({ query, key, weight, head }) => (
          <path
            key={`${head} ${query} ${key}`}
            class="edge"
            d={`M${LEFT},${from(query)}C${(LEFT + RIGHT) / 2},${from(query)} ${(LEFT + RIGHT) / 2},${to(key)} ${RIGHT},${to(key)}`}
            stroke={all ? headColour(head, stack.heads) : "var(--accent)"}
            stroke-width={0.6 + 3 * weight}
            opacity={Math.min(1, 0.12 + weight)}
          >
            <title>{`${queryTokens.label(query)} → ${tokens.label(key)}: ${formatWeight(weight)}`}</title>
          </path>
        ))}
        {column("query", queries)}
        {column("key", keys)}
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
