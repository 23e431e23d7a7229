/** Softmax as the page recomputes it while a reader moves the temperature. */

/** Weights of a row of scores; a score of −∞ weighs 0, and a row of nothing else stays all 0. */
export function softmax(scores: ArrayLike<number>, temperature = 1): number[] {
  const values = Array.from(scores, (score) => score / temperature);
  const peak = values.reduce((most, value) => Math.max(most, value), -Infinity);
  if (peak === -Infinity) return values.map(() => 0);
  const powers = values.map((value) => Math.exp(value - peak));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

/** The scores, and behind them what a sink, which takes weight and hands over nothing, would have scored. */
export function withSink(scores: readonly number[], weights: readonly number[]): number[] {
  const rest = 1 - weights.reduce((sum, w) => sum + w, 0);
  const top = weights.reduce((best, w, i) => (w > weights[best]! ? i : best), 0);
  if (rest < 1e-3 || !(weights[top]! > 0)) return [...scores];
  return [...scores, scores[top]! - Math.log(weights[top]!) + Math.log(rest)];
}

/** Entropy in nats; 0 log 0 is 0. */
export function entropy(weights: ArrayLike<number>): number {
  return Array.from(weights).reduce((sum, w) => (w > 0 ? sum - w * Math.log(w) : sum), 0);
}

/** How many equally weighted keys would have the same entropy. */
export function effectiveKeys(weights: ArrayLike<number>): number {
  return Math.exp(entropy(weights));
}

/** One sentence on how spread out a row of weights is. */
export function spread(weights: readonly number[]): string {
  const keys = weights.filter((w) => w > 0).length;
  const most = largest(weights);
  const even = effectiveKeys(weights);
  if (keys === 0) return "This query may look at nothing, so there is nothing to mix.";
  if (keys === 1) return "Only one key has any weight: the output is that key's value.";
  if (most > 0.99) return "Saturated: one key takes nearly everything, and its gradient is nearly zero.";
  if (even > 0.95 * keys) return "Nearly even: the output is close to the plain average of the values.";
  return `As spread out as ${even.toFixed(1)} equally weighted keys.`;
}

/** The largest weight; a row may hold more numbers than a call takes arguments. */
export function largest(weights: readonly number[]): number {
  return weights.reduce((most, w) => Math.max(most, w), 0);
}
