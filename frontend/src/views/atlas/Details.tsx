/** What is known about one head: kinds with their scores, numbers, and two curves. */

import { useState } from "preact/hooks";
import { useAnswer } from "../../parts/answer";
import { Bars } from "../../parts/bars";
import { evenBins, logBins, powerLaw } from "../../parts/bins";
import { Curve } from "../../parts/curve";
import { EvidencePanel } from "../../parts/evidence";
import { formatNumber } from "../../parts/format";
import { KINDS, spoken } from "../../parts/kinds";
import type { MapRef, Source } from "../../source/source";
import { useViewState, type View } from "../../state";
import type { Card } from "./cards";
import { meaningOf } from "./meanings";
import { kindsOf, score } from "./select";

export interface DetailsProps {
  source: Source;
  rec: string;
  card: Card;
  least: number | null;
  /** Named where there are several. */
  stack: string | null;
  onOpen(): void;
}

export function Details({ source, rec, card, least, stack, onOpen }: DetailsProps) {
  const { role, layer, head } = card;
  const known = source.offersStatistics({ rec, role, layer, head });
  const statistics = useAnswer(!known ? null : (signal) => source.statistics({ rec, role, layer, head }, signal), [
    source,
    rec,
    role,
    layer,
    head,
  ]);
  const kinds = kindsOf(card, least);
  const scored = Object.keys(card.kinds)
    .sort((a, b) => score(card, b) - score(card, a))
    .slice(0, 4);
  const { decay, profile } = statistics.value?.curves ?? {};
  const gamma = card.statistics.gamma ?? null;
  const points = decay ? logBins(decay.distance, decay.weight) : [];
  const waiting = statistics.failure ?? (statistics.busy ? "Computing…" : "Not known for this head");
  return (
    <section class="details" aria-label={`Layer ${layer}, head ${head}`} data-testid="atlas-details">
      <header>
        <h2>
          {stack ? `${stack}, layer` : "Layer"} {layer}, head {head}
        </h2>
        {source.kind !== "static" && (
          <button type="button" class="primary" data-testid="open-in-map" onClick={onOpen}>
            Open in Map
          </button>
        )}
      </header>
      <p class="soft" role="status">
        {kinds.length ? kinds.map(spoken).join(", ") : "No kind fits this head."}
      </p>
      <ul class="evidence" aria-label="Evidence">
        {kinds.map((kind) => (
          <li key={kind}>{card.kinds[kind]!.evidence}</li>
        ))}
      </ul>
      <Why
        source={source}
        map={{ rec, role, layer, head }}
        kinds={Object.keys(card.kinds)}
        first={kinds[0] ?? scored[0] ?? null}
      />
      <Bars
        title="How well kinds fit"
        top={1}
        rows={scored.map((kind) => ({ label: spoken(kind), value: card.kinds[kind]!.score }))}
      />
      {known && role !== "cross" && (
        <Curve
          title="Weight by distance"
          x={{ label: "distance (tokens)", log: true }}
          y={{ label: "mean weight", log: true }}
          points={points}
          fit={
            gamma === null
              ? []
              : powerLaw(
                  points.filter((p) => p.x <= (card.statistics.decay_last ?? Infinity)),
                  gamma,
                )
          }
          {...(gamma === null ? {} : { fitLabel: fitted(card, gamma) })}
          empty={waiting}
        />
      )}
      {known && (
        <Curve
          title="Mass by position"
          x={{ label: "key position" }}
          y={{ label: "mass received", log: true }}
          points={profile ? evenBins(profile.position, profile.mass) : []}
          empty={waiting}
        />
      )}
      <dl class="numbers">
        {Object.entries(card.statistics).map(([name, value]) => (
          <div key={name}>
            <dt title={meaningOf(name)}>{spoken(name)}</dt>
            <dd>{formatNumber(value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** Where to see it: the evidence for one kind of this head, the best one unless another is asked for. */
function Why({
  source,
  map,
  kinds,
  first,
}: {
  source: Source;
  map: MapRef;
  kinds: readonly string[];
  first: string | null;
}) {
  const state = useViewState();
  const [chosen, choose] = useState<string | null>(null);
  const offered = KINDS.filter((kind) => kinds.includes(kind) && source.offersEvidence(map, kind));
  const kind = chosen ?? first;
  if (offered.length === 0 || kind === null) return null;
  const go = (view: View, query: number | null, key: number | null): void => {
    state.param("mark").value = kind;
    state.go({
      view,
      role: map.role,
      layer: map.layer,
      head: map.head,
      query,
      key,
      x: key,
      y: query,
      z: query === null ? null : 4,
    });
  };
  return (
    <div class="why">
      <label class="picker">
        <span class="picker-name">Evidence for</span>
        <select
          aria-label="Evidence for"
          value={kind}
          data-testid="why-kind"
          onChange={(event) => choose(event.currentTarget.value)}
        >
          {offered.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <EvidencePanel source={source} map={map} kind={kind} onGo={source.kind === "static" ? null : go} />
    </div>
  );
}

/** The fit in a few signs: exponent, interval, and whether another curve fits better. */
function fitted({ statistics, notes }: Card, gamma: number): string {
  const [low, high] = [statistics.gamma_low, statistics.gamma_high];
  const interval = low === undefined || high === undefined ? "" : ` (${low.toFixed(2)} … ${high.toFixed(2)})`;
  const other = notes.decay_better?.startsWith("exp") ? ", exponential fits better" : "";
  return `γ = ${gamma.toFixed(2)}${interval}${other}`;
}
