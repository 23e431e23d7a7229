import { useSignal, useSignalEffect } from "@preact/signals";

import { formatCount, formatNumber, formatPercent, formatWeight } from "../../parts/format";
import type { Region } from "../../source/source";
import { mapRef } from "../../state";
import type { MapModel } from "./model";

/** Statistics of the marked region. */
export function RegionCard({ model }: { model: MapModel }) {
  const region = useSignal<Region | null>(null);
  const failure = useSignal<string | null>(null);
  useSignalEffect(() => {
    const box = model.box.value;
    const map = mapRef(model.state);
    region.value = null;
    failure.value = null;
    if (!box) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      model.source
        .region(map, box, stop.signal)
        .then((answer) => {
          region.value = answer;
        })
        .catch((error: unknown) => {
          if (!stop.signal.aborted) failure.value = error instanceof Error ? error.message : String(error);
        });
    }, 200);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  });

  const box = model.box.value;
  return (
    <section class="card" aria-label="Region" data-testid="region">
      <div class="card-head">
        <h3>Region</h3>
        <button
          type="button"
          aria-pressed={model.brushing.value}
          data-testid="brush"
          title="Mark a rectangle (or hold Shift and drag)"
          onClick={() => (model.brushing.value = !model.brushing.value)}
        >
          {model.brushing.value ? "Drag on the map…" : "Mark"}
        </button>
        {box && (
          <button type="button" onClick={() => (model.box.value = null)}>
            Clear
          </button>
        )}
      </div>
      {!box && <p class="soft small">Shift-drag on the map to add up a rectangle of it.</p>}
      {box && (
        <p class="small soft number">
          queries {formatCount(box.q0)}–{formatCount(box.q1 - 1)}, keys {formatCount(box.k0)}–{formatCount(box.k1 - 1)}
        </p>
      )}
      {failure.value && <p class="small bad">{failure.value}</p>}
      {region.value && <RegionNumbers region={region.value} model={model} />}
    </section>
  );
}

function RegionNumbers({ region, model }: { region: Region; model: MapModel }) {
  const lines: [string, string][] = [
    ["share of the rows’ weight", formatPercent(region.share)],
    ["mass", formatNumber(region.mass, 4)],
    ["mean weight", formatWeight(region.mean)],
    ["allowed cells", `${formatCount(region.visible)} of ${formatCount(region.cells)}`],
    ["mean entropy of the rows", region.entropy_mean === null ? "–" : `${formatNumber(region.entropy_mean, 3)} nats`],
  ];
  return (
    <table class="reading" data-testid="region-numbers">
      <tbody>
        <tr>
          <th scope="row">heaviest</th>
          <td>
            {region.max_at ? (
              <button type="button" class="link" onClick={() => goTo(model, region.max_at!)}>
                {formatWeight(region.max)}
              </button>
            ) : (
              formatWeight(region.max)
            )}
          </td>
        </tr>
        {lines.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function goTo(model: MapModel, [query, key]: [number, number]): void {
  model.pick({ query, key });
  model.center(query, key);
}
