/** The picture of each step. */

import { Fragment } from "preact";
import { Bars } from "../../parts/bars";
import { formatPercent } from "../../parts/format";
import { figure, Grid } from "../../parts/grid";
import { Token } from "../../parts/token-chip";
import { filled, gapBefore, left, pick, type Walk } from "./walk";

const WIDE = 6;
const WIDER = 8;

export function TokensFigure({ walk }: { walk: Walk }) {
  const shown = filled(walk, pick(walk, 40, 4));
  return (
    <div class="token-line" data-testid="token-line">
      {shown.map((i, n) => {
        const gap = gapBefore(walk, shown, n);
        const { token, position, allowed } = walk.keys[i]!;
        return (
          <Fragment key={i}>
            {gap > 0 && (
              <span class="token-gap" title={`${gap} tokens between`}>
                ⋯ {gap} more ⋯
              </span>
            )}
            <span class={allowed ? undefined : "token-forbidden"}>
              <Token text={token} role={i === walk.self ? "query" : allowed ? "key" : undefined} position={position} />
            </span>
          </Fragment>
        );
      })}
      {walk.self < 0 && <Token text={walk.query} role="query" />}
      <p class="small soft token-legend">
        <span class="token query">asks</span> <span class="token key">may answer</span>{" "}
        {shown.some((i) => !walk.keys[i]!.allowed) && (
          <span class="token-forbidden">
            <span class="token">may not be seen</span>
          </span>
        )}
      </p>
    </div>
  );
}

export function VectorsFigure({ walk, most }: { walk: Walk; most: number }) {
  const shown = pick(walk, most, 0);
  const names = shown.map((i) => walk.keys[i]!.token);
  const cut = (row: readonly number[]) => row.slice(0, WIDE);
  const rows = (matrix: readonly number[][]) => shown.map((i) => cut(matrix[i] ?? []));
  return (
    <div class="vectors">
      <div class="vectors-q">
        <Grid
          title="q: what it looks for"
          values={[cut(walk.q)]}
          rows={[walk.query]}
          columnsInAll={walk.dim}
          marked={[0]}
        />
      </div>
      <Grid title="k: found by" values={rows(walk.k)} rows={names} rowsInAll={walk.visible} columnsInAll={walk.dim} />
      <Grid
        title="v: handed over"
        values={rows(walk.v)}
        rows={names}
        rowsInAll={walk.visible}
        columnsInAll={walk.valueDim}
      />
    </div>
  );
}

export function MixFigure({ walk, most }: { walk: Walk; most: number }) {
  const shown = pick(walk, most, 0);
  const more = left(walk, shown);
  const top = Math.max(1e-9, ...shown.map((i) => walk.weights[i] ?? 0));
  return (
    <div class="mix" data-testid="mix">
      <table class="mix-table">
        <caption class="visually-hidden">Each weight times its value, added up</caption>
        <tbody>
          {shown.map((i) => (
            <tr key={i} style={{ "--weight": ((walk.weights[i] ?? 0) / top).toFixed(3) }}>
              <th scope="row">
                <Token
                  text={walk.keys[i]!.token}
                  role={i === walk.self ? "query" : "key"}
                  position={walk.keys[i]!.position}
                />
              </th>
              <td class="mix-weight">
                <i class="bar" style={{ "--share": ((walk.weights[i] ?? 0) / top).toFixed(4) }} />
                <span>{(walk.weights[i] ?? 0).toFixed(3)}</span>
              </td>
              <td class="mix-times" aria-label="times">
                ×
              </td>
              {(walk.v[i] ?? []).slice(0, WIDER).map((x, j) => (
                <td key={j} class="mix-number">
                  {figure(x)}
                </td>
              ))}
            </tr>
          ))}
          {more > 0 && (
            <tr>
              <td class="grid-more" colSpan={WIDER + 3}>
                … and {more.toLocaleString("en")} more, added in as well
              </td>
            </tr>
          )}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">
              <Token text={walk.query} role="query" />
            </th>
            <td colSpan={2} class="mix-equals">
              output =
            </td>
            {walk.output.slice(0, WIDER).map((x, j) => (
              <td key={j} class="mix-number mix-sum">
                {figure(x)}
              </td>
            ))}
          </tr>
        </tfoot>
      </table>
      {walk.valueDim > WIDER && (
        <p class="small soft">
          The first {WIDER} of {walk.valueDim} numbers of each value.
        </p>
      )}
    </div>
  );
}

export function ParallelFigure({ walk }: { walk: Walk }) {
  const { values, rows, columns } = walk.parallel!;
  const shown = pick(walk, 12);
  return (
    <Grid
      title="Rows are queries, columns are keys"
      values={values.map((row) => shown.map((i) => row[i] ?? null))}
      rows={rows}
      columns={shown.map((i) => columns[i] ?? "")}
      columnsInAll={left(walk, shown) + shown.length}
      marked={[walk.parallelRow]}
    />
  );
}

export function HeadsFigure({ walk, head }: { walk: Walk; head: number }) {
  const norms = walk.heads!;
  const top = Math.max(1e-9, ...norms);
  return (
    <div data-testid="heads-figure">
      <ol class="concat" aria-label="Outputs of the heads laid end to end">
        {norms.map((norm, i) => (
          <li key={i} class={i === head ? "concat-own" : undefined} style={{ "--heat": (norm / top).toFixed(3) }}>
            <span>head {i}</span>
            <b>{norm.toFixed(2)}</b>
          </li>
        ))}
      </ol>
      <p class="small soft">Each block is one head's output; the number is its length, the darker the longer.</p>
    </div>
  );
}

export function NextFigure({ walk }: { walk: Walk }) {
  return (
    <Bars
      title={`After “${walk.query.trim()}”`}
      testid="next-bars"
      rows={walk.next!.slice(0, 10).map(({ token, probability }) => ({ label: token, value: probability }))}
      format={formatPercent}
    />
  );
}
