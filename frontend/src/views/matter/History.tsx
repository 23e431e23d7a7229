/** Everything blocked in this visit, and whether weight foretold effect. */

import type { Open } from "../../context";
import { formatNumber } from "../../parts/format";
import { Scatter } from "../../parts/scatter";
import { short, type Target, type Try } from "./tries";

interface HistoryProps {
  tries: readonly Try[];
  open: Open;
  onAgain(target: Target): void;
}

export function History({ tries, open, onAgain }: HistoryProps) {
  const { tokens, queryTokens } = open;
  const name = (target: Target): string =>
    short(
      target,
      (i) => queryTokens.label(i),
      (i) => tokens.label(i),
    );
  const weighed = tries.filter((one) => one.weight !== null && one.result.kl !== null);
  return (
    <section class="history" aria-label="What you tried">
      <div>
        <h3>What you tried</h3>
        <table class="history-table" data-testid="history">
          <thead>
            <tr>
              <th scope="col">blocked</th>
              <th scope="col">read after</th>
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
                    {name(one.target)}
                  </button>
                </th>
                <td>
                  “{queryTokens.label(one.target.at)}” {one.target.at}
                </td>
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
          dots={weighed.map((one) => ({ x: one.weight!, y: one.result.kl!, name: name(one.target) }))}
          marked={weighed.length - 1}
        />
      )}
    </section>
  );
}
