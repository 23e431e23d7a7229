import { useSignal, useSignalEffect } from "@preact/signals";

import { formatCount, formatNumber, formatWeight } from "../../parts/format";
import { TokenLabel } from "../../parts/tokens";
import type { Cell, MapRef } from "../../source/source";
import { mapRef } from "../../state";
import type { MapModel } from "./model";

interface Reading {
  cell: Cell;
  beside: Cell | null;
}

/** The cell at the cross-hair, exactly: asked for when the pointer rests a moment, forgotten when it moves on. */
export function Readout({ model }: { model: MapModel }) {
  const reading = useSignal<Reading | null>(null);
  const failure = useSignal<string | null>(null);
  useSignalEffect(() => {
    const spot = model.hover.value ?? model.pinned.value;
    const maps: MapRef[] = [mapRef(model.state)];
    if (model.beside.value) maps.push(model.beside.value);
    if (!spot) {
      reading.value = null;
      return;
    }
    const stop = new AbortController();
    const timer = setTimeout(() => {
      Promise.all(maps.map((map) => model.source.cell(map, spot.query, spot.key, stop.signal)))
        .then(([cell, beside]) => {
          reading.value = cell ? { cell, beside: beside ?? null } : null;
          failure.value = null;
        })
        .catch((error: unknown) => {
          if (!stop.signal.aborted) failure.value = error instanceof Error ? error.message : String(error);
        });
    }, 60);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  });

  const spot = model.hover.value ?? model.pinned.value;
  const fresh = reading.value?.cell.query === spot?.query && reading.value?.cell.key === spot?.key;
  return (
    <section class="card readout" aria-label="Cell at the cross-hair" data-testid="readout" aria-busy={!fresh && spot !== null}>
      {spot === null ? (
        <p class="soft">Point at the map to read a cell. Click, or press Enter, to keep the cross-hair there.</p>
      ) : (
        <>
          <p class="pair">
            <TokenLabel tokens={model.open.queryTokens} i={spot.query} role="query" />
            <span class="looks">looks at</span>
            <TokenLabel tokens={model.open.tokens} i={spot.key} role="key" />
          </p>
          {failure.value && <p class="small bad">{failure.value}</p>}
          <Numbers reading={fresh ? reading.value : null} heads={headNames(model)} apart={model.open.apart} />
        </>
      )}
    </section>
  );
}

function headNames(model: MapModel): [string, string] {
  const { layer, head } = mapRef(model.state);
  const beside = model.beside.value;
  return [`${layer}.${head}`, beside ? `${beside.layer}.${beside.head}` : ""];
}

function Numbers({ reading, heads, apart }: { reading: Reading | null; heads: [string, string]; apart: boolean }) {
  const cells = reading ? [reading.cell, ...(reading.beside ? [reading.beside] : [])] : [];
  const lines: [name: string, testid: string, of: (cell: Cell) => string][] = [
    ["weight", "cell-weight", (cell) => (cell.visible ? formatWeight(cell.weight) : "not allowed")],
    ["score", "cell-score", (cell) => formatNumber(cell.score, 4)],
    ["rank in its row", "cell-rank", (cell) => (cell.rank === null || !cell.visible ? "–" : formatCount(cell.rank))],
  ];
  // Between two texts there is no distance.
  if (!apart) lines.push(["distance", "cell-distance", (cell) => formatCount(cell.distance)]);
  return (
    <table class="reading">
      {cells.length > 1 && (
        <thead>
          <tr>
            <th scope="col">head</th>
            {cells.map((_, i) => (
              <th key={i} scope="col">
                {heads[i]}
              </th>
            ))}
          </tr>
        </thead>
      )}
      <tbody>
        {lines.map(([name, testid, of]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            {cells.length === 0 ? (
              <td class="soft">…</td>
            ) : (
              cells.map((cell, i) => (
                <td key={i} data-testid={i === 0 ? testid : `${testid}-beside`} data-value={testid === "cell-weight" ? cell.weight : undefined}>
                  {of(cell)}
                </td>
              ))
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
