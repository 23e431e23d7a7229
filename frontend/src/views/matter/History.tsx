/** Everything blocked in this visit, and whether weight foretold effect. */

import { formatNumber } from "../../parts/format";
import { Scatter } from "../../parts/scatter";
import { short, type Target, type Try } from "./tries";

export function History({ tries, onAgain }: { tries: readonly Try[]; onAgain(target: Target): void }) {
  const weighed = tries.filter((one) => one.weight !== null && one.result.kl !== null);
  return (
    <section class="history" aria-label="What you tried">
      <div>
        <h3>What you tried</h3>
        <table class="history-table" data-testid="history">
          <thead>
            <tr>
              <th scope="col">blocked</th>
              <th scope="col">weight</th>
              <th scope="col">KL</th>
              <th scope="col">loss</th>
            </tr>
          </thead>
          <tbody>
            {tries.toReversed().map((one, i) => (
              <tr key={tries.length - i}>
                <th scope="row">
                  <button type="button" class="link" onClick={() => onAgain(one.target)}>
                    {short(one.target)}
                  </button>
                </th>
                <td>{formatNumber(one.weight, 2)}</td>
                <td>{formatNumber(one.result.kl, 2)}</td>
                <td>{formatNumber(one.result.loss_change, 2)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {weighed.length > 0 && (
        <Scatter
          title="Weight against effect"
          xLabel="weight removed"
          yLabel="KL (nats)"
          dots={weighed.map((one) => ({ x: one.weight!, y: one.result.kl!, name: short(one.target) }))}
          marked={weighed.length - 1}
        />
      )}
    </section>
  );
}
