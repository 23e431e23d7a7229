/** Which heads are shown: chips for kinds, sliders for scores and statistics, an order. */

import { formatNumber } from "../../parts/format";
import { kindColour, spoken } from "../../parts/kinds";
import type { Card } from "./cards";
import { meaningOf } from "./meanings";
import { type Choice, counts, extent } from "./select";

export interface ControlsProps {
  cards: readonly Card[];
  kinds: readonly string[];
  statistics: readonly string[];
  choice: Choice;
  onChange(changes: Partial<Choice>): void;
}

export function Controls({ cards, kinds, statistics, choice, onChange }: ControlsProps) {
  const found = counts(cards, kinds, choice.least);
  return (
    <div class="atlas-controls">
      <div class="chips" role="group" aria-label="Kinds">
        <button
          type="button"
          class="chip"
          aria-pressed={choice.kind === null}
          data-testid="kind-all"
          onClick={() => onChange({ kind: null })}
        >
          all <b>{cards.length}</b>
        </button>
        {kinds.map((kind) => (
          <button
            key={kind}
            type="button"
            class="chip"
            aria-pressed={choice.kind === kind}
            data-testid={`kind-${kind}`}
            disabled={found.get(kind) === 0 && choice.kind !== kind}
            onClick={() => onChange({ kind: choice.kind === kind ? null : kind })}
          >
            <i style={{ background: kindColour(kinds, kind) }} aria-hidden="true" />
            {spoken(kind)} <b>{found.get(kind)}</b>
          </button>
        ))}
      </div>
      <div class="atlas-sliders">
        <label>
          <span>
            Score at least <output>{choice.least === null ? "each kind's bar" : choice.least.toFixed(2)}</output>
          </span>
          <input
            type="range"
            min="0"
            max="1"
            step="0.01"
            value={choice.least ?? 0}
            data-testid="least"
            onInput={(event) => onChange({ least: Number(event.currentTarget.value) || null })}
          />
        </label>
        <Threshold cards={cards} statistics={statistics} choice={choice} onChange={onChange} />
        <label class="picker">
          <span>Order</span>
          <select
            value={choice.sort}
            data-testid="sort"
            onChange={(event) => onChange({ sort: event.currentTarget.value })}
          >
            <option value="layer">layers × heads</option>
            <optgroup label="By kind">
              {kinds.map((kind) => (
                <option key={kind} value={`kind:${kind}`}>
                  {spoken(kind)}
                </option>
              ))}
            </optgroup>
            <optgroup label="By statistic">
              {statistics.map((name) => (
                <option key={name} value={`stat:${name}`}>
                  {spoken(name)}
                </option>
              ))}
            </optgroup>
          </select>
        </label>
      </div>
      <Meaning sort={choice.sort} stat={choice.stat} />
    </div>
  );
}

/** What the statistics in use mean. */
function Meaning({ sort, stat }: { sort: string; stat: string | null }) {
  const names = new Set([...(stat ? [stat] : []), ...(sort.startsWith("stat:") ? [sort.slice(5)] : [])]);
  return [...names].map((name) => (
    <p key={name} class="small soft" data-testid="meaning">
      <b>{spoken(name)}</b>: {meaningOf(name)}
    </p>
  ));
}

function Threshold({ cards, statistics, choice, onChange }: Omit<ControlsProps, "kinds">) {
  const ends = choice.stat === null ? null : extent(cards, choice.stat);
  const above = ends ? Math.min(ends[1], Math.max(ends[0], choice.above ?? ends[0])) : 0;
  return (
    <span class="threshold">
      <label class="picker">
        <span>Only with</span>
        <select
          value={choice.stat ?? ""}
          data-testid="stat"
          onChange={(event) => onChange({ stat: event.currentTarget.value || null, above: null })}
        >
          <option value="">any statistic</option>
          {statistics.map((name) => (
            <option key={name} value={name}>
              {spoken(name)}
            </option>
          ))}
        </select>
      </label>
      {ends && choice.stat && (
        <label>
          <span>
            at least <output>{formatNumber(above)}</output>
          </span>
          <input
            type="range"
            min={ends[0]}
            max={ends[1]}
            step={(ends[1] - ends[0]) / 200 || 1}
            value={above}
            data-testid="above"
            aria-label={`${spoken(choice.stat)} at least`}
            onInput={(event) => onChange({ above: Number(event.currentTarget.value) })}
          />
        </label>
      )}
    </span>
  );
}
