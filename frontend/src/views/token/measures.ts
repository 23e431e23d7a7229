/** What the grid of heads can show of one token, and on which scale. */

import { type ColourScale, scaleFor } from "../../parts/colour";
import type { Everywhere } from "../../source/source";
import type { ViewState } from "../../state";

export type Side = "query" | "key";
export type MeasureName = "top" | "entropy" | "weight" | "mass";

export interface Measure {
  name: MeasureName;
  title: string;
  meaning: string;
  values(found: Everywhere): number[][] | null;
}

const TOP: Measure = {
  name: "top",
  title: "heaviest weight",
  meaning: "The weight of the heaviest pair: bright heads look at one token.",
  values: (found) => found.top_weight,
};
const ENTROPY: Measure = {
  name: "entropy",
  title: "entropy",
  meaning: "How spread the row is, in nats: dark heads look at few tokens.",
  values: (found) => found.entropy,
};
const WEIGHT: Measure = {
  name: "weight",
  title: "weight on the key",
  meaning: "How much of the query's attention the chosen key gets: bright heads move it.",
  values: (found) => found.weight,
};
const MASS: Measure = {
  name: "mass",
  title: "mass received",
  meaning: "All weights on the key added up over the queries: bright heads lean on it.",
  values: (found) => found.mass,
};

/** What is known of a query, with or without a chosen key, or of a key. */
export function measuresOf(side: Side, paired: boolean): Measure[] {
  if (side === "key")
    return [MASS, { ...TOP, meaning: "The weight that the query which looks hardest at it gives it." }];
  return paired ? [WEIGHT, TOP, ENTROPY] : [TOP, ENTROPY];
}

/** Weights on the scale of the map; entropy and mass from 0 to their largest. */
export function scaleOf(measure: Measure, values: number[][], keys: number, state: ViewState): ColourScale {
  const high = Math.max(1e-12, ...values.map((row) => Math.max(...row)));
  if (measure.name === "entropy") return { palette: state.palette.value, scale: "linear", low: 0, high };
  return scaleFor(
    keys,
    state.palette.value,
    state.scale.value,
    measure.name === "mass" ? high : Math.min(1, nice(high)),
  );
}

/** Rounded up to 1, 2 or 5. */
function nice(value: number): number {
  const base = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * base).find((step) => step >= value * 0.999) ?? value;
}
