/** Softmax with the reader's hand on it: temperature and scale, recomputed in the page as they move. */

import { Bars } from "../../parts/bars";
import { formatPercent } from "../../parts/format";
import { effectiveKeys, entropy, largest, softmax, spread } from "./softmax";
import { left, pick, type Walk } from "./walk";

export interface WhatIfProps {
  walk: Walk;
  /** Scores of every key the query sees, up to a constant, and where the walk's keys are among them. */
  logits: readonly number[];
  places: readonly number[];
  most: number;
  temperature: number;
  scaled: boolean;
  onTemperature(value: number): void;
  onScaled(value: boolean): void;
}

const COLD = 0.1;
const HOT = 10;

export function WhatIf({ walk, logits, places, most, temperature, scaled, onTemperature, onScaled }: WhatIfProps) {
  const own = softmax(logits);
  const sharpness = (scaled ? 1 : 1 / walk.scale) / temperature;
  const now = softmax(logits, 1 / sharpness);
  const changed = !scaled || temperature !== 1;
  const shown = pick(walk, most, 0);
  return (
    <section class="what-if" aria-label="What if: temperature and scale">
      <div class="what-if-controls">
        <label>
          <span>
            Temperature <output data-testid="temperature-shown">{temperature.toFixed(2)}</output>
          </span>
          <input
            type="range"
            min={Math.log(COLD)}
            max={Math.log(HOT)}
            step="0.01"
            value={Math.log(temperature)}
            aria-valuetext={`temperature ${temperature.toFixed(2)}`}
            data-testid="temperature"
            onInput={(event) => onTemperature(snapped(Math.exp(Number(event.currentTarget.value))))}
          />
          <span class="what-if-ends small soft">
            <i>sharp</i>
            <i>even</i>
          </span>
        </label>
        <label class="switch">
          <input
            type="checkbox"
            role="switch"
            aria-checked={!scaled}
            checked={!scaled}
            data-testid="no-root"
            onChange={(event) => onScaled(!event.currentTarget.checked)}
          />
          <span>without ÷ √d</span>
        </label>
        <button
          type="button"
          disabled={!changed}
          onClick={() => {
            onTemperature(1);
            onScaled(true);
          }}
        >
          Reset
        </button>
      </div>
      <div role="status">
        <dl class="facts" data-testid="spread">
          <Fact
            name="Entropy"
            now={entropy(now)}
            was={changed ? entropy(own) : null}
            format={(v) => `${v.toFixed(2)} nats`}
          />
          <Fact
            name="Acts like"
            now={effectiveKeys(now)}
            was={changed ? effectiveKeys(own) : null}
            format={(v) => `${v.toFixed(1)} keys`}
          />
          <Fact name="Largest" now={largest(now)} was={changed ? largest(own) : null} format={formatPercent} />
        </dl>
      </div>
      <p class="small soft">{spread(now)}</p>
      <Bars
        title="Weights"
        testid="what-if-bars"
        top={Math.max(0.3, largest(own), largest(now))}
        {...(changed ? { names: ["as computed", "with your change"] as const } : {})}
        rows={shown.map((i) => ({
          label: walk.keys[i]!.token,
          value: now[places[i]!] ?? 0,
          ...(changed ? { before: own[places[i]!] ?? 0 } : {}),
        }))}
        format={(value) => value.toFixed(3)}
        more={left(walk, shown)}
      />
    </section>
  );
}

function Fact({
  name,
  now,
  was,
  format,
}: {
  name: string;
  now: number;
  was: number | null;
  format(value: number): string;
}) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {format(now)} {was !== null && <s>{format(was)}</s>}
      </dd>
    </div>
  );
}

/** The middle of the slider holds on to 1, which a hand would otherwise miss. */
function snapped(temperature: number): number {
  return Math.abs(Math.log(temperature)) < 0.06 ? 1 : Number(temperature.toFixed(2));
}
