/** What the atlas's statistics say about a head, in a sentence each. */
const MEANINGS: Record<string, string> = {
  entropy: "How spread the rows are, in nats: 0 is all weight on one key; e to this power is the number of keys used.",
  top_weight: "The weight of each query's heaviest key, on average: how sure the head is of where to look.",
  sink_mass: "The share of weight on the first four keys.",
  heaviest_key: "The key that receives most of all weight.",
  heaviest_key_mass: "The share of all weight that the heaviest key receives.",
  mean_distance: "How many tokens back the head looks, weighted by where its weight is.",
  window_90: "The smallest window of near keys that holds 90 % of the weight.",
  heaviest_distance: "The one distance that has most of the weight.",
  heaviest_distance_mass: "The share of weight on the heaviest distance.",
  gamma: "The exponent of the power law by which weight falls off with distance: larger falls off faster.",
  gamma_low: "The lower end of the exponent's 95 % interval.",
  gamma_high: "The upper end of the exponent's 95 % interval.",
  decay_r2: "How well the power law fits, 1 being perfect.",
  decay_last: "The largest distance that the fit uses.",
  gamma_without_sinks: "The exponent where the first four keys are left out.",
  gamma_without_sinks_low: "The lower end of its 95 % interval.",
  gamma_without_sinks_high: "The upper end of its 95 % interval.",
};

/** One sentence, or nothing where none was written. */
export function meaningOf(statistic: string): string {
  return MEANINGS[statistic] ?? "";
}
