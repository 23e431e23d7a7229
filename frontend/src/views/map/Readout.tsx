import { useSignalEffect } from "@preact/signals";
import { useMemo } from "preact/hooks";

import { sentence } from "../../parts/answer";
import { formatCount, formatNumber, formatWeight } from "../../parts/format";
import { Keyed, keyOf } from "../../parts/keyed";
import { TokenLabel } from "../../parts/tokens";
import type { Box, Cell, MapRef, Region } from "../../source/source";
import { mapRef } from "../../state";
import { Copies } from "./Copies";
import type { MapModel } from "./model";
import type { Spot } from "./overlay";

/** What the reader points at: one cell, or the block of cells that one colour stands for. */
type Aim = { spot: Spot; block: null } | { spot: Spot; block: Box };

type Answer = { cells: Cell[]; blocks: null } | { cells: null; blocks: Region[] };

/** The cell or block at the cross-hair, exactly: asked for when the pointer rests a moment, blank until it is there. */
export function Readout({ model }: { model: MapModel }) {
  const answered = useMemo(() => new Keyed<Answer>(), []);
  const failed = useMemo(() => new Keyed<string>(), []);
  useSignalEffect(() => {
    const aim = aimOf(model);
    const maps = mapsOf(model);
    if (!aim) return;
    const question = keyOf(maps, aim);
    const stop = new AbortController();
    const timer = setTimeout(() => {
      ask(model, maps, aim, stop.signal)
        .then((answer) => answered.set(question, answer))
        .catch((error: unknown) => {
          if (!stop.signal.aborted) failed.set(question, sentence(error));
        });
    }, 60);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  });

  const aim = aimOf(model);
  const question = aim && keyOf(mapsOf(model), aim);
  const answer = answered.get(question);
  const failure = failed.get(question);
  return (
    <section
      class="card readout"
      aria-label="Cell at the cross-hair"
      data-testid="readout"
      aria-busy={aim !== null && !answer && !failure}
    >
      {aim === null ? (
        <p class="soft">Point at the map to read a cell. Click, or press Enter, to keep the cross-hair there.</p>
      ) : (
        <>
          {aim.block ? <BlockName block={aim.block} /> : <Pair model={model} spot={aim.spot} />}
          {failure && <p class="small bad">{failure}</p>}
          {aim.block ? (
            <BlockNumbers model={model} regions={answer?.blocks ?? []} />
          ) : (
            <CellNumbers model={model} cells={answer?.cells ?? []} />
          )}
          {!aim.block && model.pinned.value && <Copies model={model} spot={model.pinned.value} />}
        </>
      )}
    </section>
  );
}

/** A pinned cross-hair is on a cell; what is pointed at from afar is the block that has its colour. */
function aimOf(model: MapModel): Aim | null {
  const hover = model.hover.value;
  const spot = hover ?? model.pinned.value;
  if (!spot) return null;
  return { spot: hover && model.blockAt(hover) ? ORIGIN : spot, block: hover ? model.blockAt(hover) : null };
}

/** Of a block all cells are one question. */
const ORIGIN: Spot = { query: 0, key: 0 };

function mapsOf(model: MapModel): MapRef[] {
  const first = mapRef(model.state);
  return model.beside.value ? [first, model.beside.value] : [first];
}

async function ask(model: MapModel, maps: MapRef[], { spot, block }: Aim, stop: AbortSignal): Promise<Answer> {
  if (block)
    return { cells: null, blocks: await Promise.all(maps.map((map) => model.source.region(map, block, stop))) };
  return {
    cells: await Promise.all(maps.map((map) => model.source.cell(map, spot.query, spot.key, stop))),
    blocks: null,
  };
}

function Pair({ model, spot }: { model: MapModel; spot: Spot }) {
  return (
    <p class="pair">
      <TokenLabel tokens={model.open.queryTokens} i={spot.query} role="query" />
      <span class="looks">looks at</span>
      <TokenLabel tokens={model.open.tokens} i={spot.key} role="key" />
    </p>
  );
}

function BlockName({ block }: { block: Box }) {
  return (
    <p class="pair" data-testid="block">
      <span class="token query">queries {range(block.q0, block.q1)}</span>
      <span class="looks">×</span>
      <span class="token key">keys {range(block.k0, block.k1)}</span>
    </p>
  );
}

function range(start: number, stop: number): string {
  return stop - start === 1 ? formatCount(start) : `${formatCount(start)}–${formatCount(stop - 1)}`;
}

function BlockNumbers({ model, regions }: { model: MapModel; regions: Region[] }) {
  const place = ({ max_at }: Region): string => {
    if (!max_at) return "–";
    const [query, key] = max_at;
    return `${model.open.queryTokens.label(query)} ${query} → ${model.open.tokens.label(key)} ${key}`;
  };
  return (
    <>
      <Lines
        model={model}
        of={regions}
        lines={[
          [
            "maximum",
            "block-max",
            (one) => (one.visible === 0 ? "not allowed" : formatWeight(one.max)),
            (one) => one.max,
          ],
          ["where", "block-where", place],
          ["mean", "block-mean", (one) => formatWeight(one.mean), (one) => one.mean],
          [
            "cells",
            "block-cells",
            (one) =>
              one.visible === one.cells
                ? formatCount(one.cells)
                : `${formatCount(one.cells)}, ${formatCount(one.visible)} allowed`,
          ],
        ]}
      />
      <p class="small soft">A click goes to the maximum.</p>
    </>
  );
}

function CellNumbers({ model, cells }: { model: MapModel; cells: Cell[] }) {
  const lines: Line<Cell>[] = [
    [
      "weight",
      "cell-weight",
      (cell) => (cell.visible ? formatWeight(cell.weight) : "not allowed"),
      (cell) => cell.weight,
    ],
    ["score", "cell-score", (cell) => formatNumber(cell.score, 4)],
    ["rank in its row", "cell-rank", (cell) => (cell.rank === null || !cell.visible ? "–" : formatCount(cell.rank))],
  ];
  // Between two texts there is no distance.
  if (!model.open.apart) lines.push(["distance", "cell-distance", (cell) => formatCount(cell.distance)]);
  return <Lines model={model} of={cells} lines={lines} />;
}

/** A name, where tests find it, what is printed of one map, and the value itself. */
type Line<T> = [name: string, testid: string, print: (one: T) => string, value?: (one: T) => number];

function Lines<T>({ model, of, lines }: { model: MapModel; of: T[]; lines: Line<T>[] }) {
  return (
    <table class="reading">
      {of.length > 1 && (
        <thead>
          <tr>
            <th scope="col">head</th>
            {mapsOf(model).map(({ layer, head }, i) => (
              <th key={i} scope="col">
                {layer}.{head}
              </th>
            ))}
          </tr>
        </thead>
      )}
      <tbody>
        {lines.map(([name, testid, print, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            {of.length === 0 ? (
              <td class="soft">…</td>
            ) : (
              of.map((one, i) => (
                <td key={i} data-testid={i === 0 ? testid : `${testid}-beside`} data-value={value?.(one)}>
                  {print(one)}
                </td>
              ))
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
