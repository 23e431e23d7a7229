/** A small matrix as coloured cells with digits, rows and columns named. */

import type { ComponentChildren } from "preact";
import { Token } from "./token-chip";
import "./charts.css";

export interface GridProps {
  /** Said above the grid, and by screen readers. */
  title: ComponentChildren;
  values: readonly (readonly (number | null)[])[];
  rows: readonly string[];
  columns?: readonly string[];
  /** Sizes before the matrix was cut to what is shown. */
  rowsInAll?: number;
  columnsInAll?: number;
  /** Rows drawn as those the reader should look at. */
  marked?: readonly number[];
  /** Largest size of a number for full colour; that of the values where not given. */
  top?: number;
  digits?: number;
}

export function Grid(props: GridProps) {
  const { title, values, rows, columns, marked = [], digits = 2 } = props;
  const top = props.top ?? largest(values);
  const moreRows = (props.rowsInAll ?? values.length) - values.length;
  const width = values[0]?.length ?? 0;
  const moreColumns = (props.columnsInAll ?? width) - width;
  return (
    <div class="grid-scroll" tabIndex={0} role="group" aria-label={typeof title === "string" ? title : undefined}>
      <table class="grid">
        <caption>{title}</caption>
        {columns && (
          <thead>
            <tr>
              <td />
              {columns.slice(0, width).map((name, i) => (
                <th key={i} scope="col">
                  <Token text={name} />
                </th>
              ))}
              {moreColumns > 0 && <td class="grid-more">… {moreColumns} more</td>}
            </tr>
          </thead>
        )}
        <tbody>
          {values.map((row, i) => (
            <tr key={i} class={marked.includes(i) ? "grid-marked" : undefined}>
              <th scope="row">
                <Token text={rows[i] ?? ""} />
              </th>
              {row.map((value, j) => (
                <Cell key={j} value={value} top={top} digits={digits} />
              ))}
              {moreColumns > 0 && !columns && <td class="grid-more">{i === 0 ? `… ${moreColumns} more` : "…"}</td>}
            </tr>
          ))}
          {moreRows > 0 && (
            <tr>
              <td class="grid-more" colSpan={width + 2}>
                … and {moreRows.toLocaleString("en")} more rows
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ value, top, digits }: { value: number | null; top: number; digits: number }) {
  if (value === null || value === -Infinity) {
    return (
      <td class="grid-hidden" aria-label="not allowed">
        {value === null ? "" : "−∞"}
      </td>
    );
  }
  const heat = top > 0 ? Math.min(1, Math.abs(value) / top) : 0;
  return (
    <td class={value < 0 ? "grid-minus" : "grid-plus"} style={{ "--heat": heat.toFixed(3) }}>
      {figure(value, digits)}
    </td>
  );
}

/** A number as it stands in a cell: a true minus sign, no zero that is only rounding in disguise. */
export function figure(value: number, digits = 2): string {
  if (value === -Infinity) return "−∞";
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size >= 1000 ? size.toFixed(0) : size >= 100 ? size.toFixed(Math.min(1, digits)) : size.toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

function largest(values: readonly (readonly (number | null)[])[]): number {
  let top = 0;
  for (const row of values) for (const v of row) if (v !== null && Number.isFinite(v)) top = Math.max(top, Math.abs(v));
  return top;
}
