/** What a knock-out changed: one sentence, the numbers, and the two distributions. */

import { Bars } from "../../parts/bars";
import { formatCount, formatNumber, formatPercent } from "../../parts/format";
import { named, type Try } from "./tries";
import { firstGuess, number, pairs, size, verdict } from "./verdict";

/** `length`: how long the text is; of a long one, the model has read only as far as was needed. */
export function Result({ made, length }: { made: Try; length: number }) {
  const { target, weight, result } = made;
  const change = result.loss_change;
  const whole = result.tokens >= length;
  return (
    <section class="result" data-testid="result">
      <p class={`verdict verdict-${size(result.kl ?? Infinity)}`} role="status" data-testid="verdict">
        {verdict({ what: named(target), weight, kl: result.kl ?? Infinity })}
      </p>
      <dl class="facts">
        <div>
          <dt>KL(before ‖ after)</dt>
          <dd data-testid="kl">{small(result.kl ?? Infinity)} nats</dd>
        </div>
        <div>
          <dt>Weight removed</dt>
          <dd>{weight === null ? "–" : number(weight)}</dd>
        </div>
        <div>
          <dt>{whole ? "Loss on the whole text" : `Loss on the first ${formatCount(result.tokens)} tokens`}</dt>
          <dd>{change === null ? "–" : `${change >= 1e-6 ? "+" : ""}${small(change)} nats`}</dd>
        </div>
      </dl>
      <Bars
        title={`What comes after token ${target.at}`}
        testid="before-after"
        names={["before", "after"]}
        rows={pairs(result.before, result.after).map(({ token, before, after }) => ({
          label: token,
          before,
          value: after,
        }))}
        format={formatPercent}
      />
      <p class="small soft">
        {firstGuess(result.before, result.after)} {change !== null && lossSentence(change, whole)}
      </p>
    </section>
  );
}

/** What is left of rounding is not a finding. */
function small(value: number): string {
  return Math.abs(value) < 1e-6 ? "≈ 0" : formatNumber(value);
}

function lossSentence(change: number, whole: boolean): string {
  const text = whole ? "Over the whole text" : "Over the text up to there";
  if (Math.abs(change) < 5e-4) return `${text} the loss hardly moved.`;
  return change > 0 ? `${text} the model does worse without it.` : `${text} the model does better without it.`;
}
