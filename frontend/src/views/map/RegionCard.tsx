import { useSignalEffect } from "@preact/signals";
import { useMemo } from "preact/hooks";

import { sentence } from "../../parts/answer";
import { formatCount, formatNumber, formatPercent, formatWeight } from "../../parts/format";
import { Keyed, keyOf } from "../../parts/keyed";
import type { Region } from "../../source/source";
import { mapRef } from "../../state";
import type { MapModel } from "./model";

/** Statistics of the marked region. */
export function RegionCard({ model }: { model: MapModel }) {
  const answered = useMemo(() => new Keyed<Region>(), []);
  const failed = useMemo(() => new Keyed<string>(), []);
  useSignalEffect(() => {
    const box = model.box.value;
    const map = mapRef(model.state);
    if (!box) return;
    const question = keyOf(map, box);
    const stop = new AbortController();
    const timer = setTimeout(() => {
      model.source
        .region(map, box, stop.signal)
        .then((answer) => {
          answered.set(question, answer);
        })
        .catch((error: unknown) => {
          if (!stop.signal.aborted) failed.set(question, sentence(error));
        });
    }, 200);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  });

  const box = model.box.value;
  const question = box && keyOf(mapRef(model.state), box);
  const region = answered.get(question);
  const failure = failed.get(question);
  return (
    <section class="card" aria-label="Region" data-testid="region">
      <div class="card-head">
        <h3>Region</h3>
        {model.exact && (
          <button
            type="button"
            aria-pressed={model.brushing.value}
            data-testid="brush"
            title="Mark a rectangle (or hold Shift and drag)"
            onClick={() => (model.brushing.value = !model.brushing.value)}
          >
            {model.brushing.value ? "Drag on the map…" : "Mark"}
          </button>
        )}
        {box && model.exact && (
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
      {failure && <p class="small bad">{failure}</p>}
      {region && <RegionNumbers region={region} model={model} />}
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
