import { useEffect } from "preact/hooks";

import { EvidencePanel } from "../../parts/evidence";
import { keyOf } from "../../parts/keyed";
import { KINDS } from "../../parts/kinds";
import type { Evidence, MapRef } from "../../source/source";
import type { View } from "../../state";
import type { MapModel } from "./model";

/** Marks on the map the cells that speak for a kind of head, and says how many there are. */
export function EvidenceCard({ model, map }: { model: MapModel; map: MapRef }) {
  const { source, state } = model;
  const kind = model.kind.value;
  const offered = KINDS.filter(
    (one) => source.offersEvidence(map, one) && (map.role !== "cross" || !BY_DISTANCE.has(one)),
  );
  const known = offered.find((one) => one === kind);
  useEffect(() => {
    if (!known) model.marked.clear();
  }, [known]);
  if (offered.length === 0) return null;
  const mark = ({ places }: Evidence): void => model.marked.set(keyOf(map, kind), places);
  const go = (view: View, query: number | null, key: number | null): void => {
    if (view === "map" && query !== null && key !== null) {
      model.pick({ query, key });
      model.center(query, key);
    } else state.go({ view, query, key });
  };
  return (
    <section class="card" aria-label="Evidence for a kind">
      <label class="row">
        <span>evidence for</span>
        <select
          aria-label="Mark evidence for a kind"
          data-testid="mark"
          value={known ?? ""}
          onChange={(event) => (model.kind.value = event.currentTarget.value)}
        >
          <option value="">nothing</option>
          {offered.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      {known && <EvidencePanel source={source} map={map} kind={known} onGo={go} onFound={mark} />}
    </section>
  );
}

const BY_DISTANCE: ReadonlySet<string> = new Set(["previous token", "self", "local", "strided", "retrieval"]);
