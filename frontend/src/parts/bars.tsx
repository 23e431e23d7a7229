/** Bars with their numbers: one value per token, or two to compare. */

import { figure } from "./grid";
import { Token } from "./token-chip";
import "./charts.css";

export interface Bar {
  label: string;
  position?: number;
  /** null where the value is not known. */
  value: number | null;
  /** What the value was before, where two are compared. */
  before?: number | null;
  marked?: boolean;
  onPick?: () => void;
}

export interface BarsProps {
  title: string;
  rows: readonly Bar[];
  /** What the two bars of a row are: before, after. */
  names?: readonly [string, string];
  /** The value a full bar stands for; the largest shown where not given. */
  top?: number;
  format?: (value: number) => string;
  /** Rows left out of the list. */
  more?: number;
  testid?: string;
}

export function Bars({ title, rows, names, top, format = figure, more = 0, testid }: BarsProps) {
  const values = rows.flatMap((row) => [row.value ?? 0, row.before ?? 0]);
  const full = top ?? Math.max(1e-12, ...values.filter(Number.isFinite).map(Math.abs));
  const signed = values.some((value) => value < 0);
  return (
    <table class={`bars${names ? " bars-paired" : ""}${signed ? " bars-signed" : ""}`} data-testid={testid}>
      <caption>
        {title}
        {names && <Key names={names} />}
      </caption>
      <thead class="visually-hidden">
        <tr>
          <th scope="col">token</th>
          <th scope="col">bar</th>
          <th scope="col">{names ? `${names[0]}, then ${names[1]}` : "value"}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, i) => (
          <Row key={`${i} ${row.label}`} row={row} full={full} paired={names !== undefined} format={format} />
        ))}
        {more > 0 && (
          <tr>
            <td class="grid-more" colSpan={3}>
              … and {more.toLocaleString("en")} more
            </td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

function Row({
  row,
  full,
  paired,
  format,
}: {
  row: Bar;
  full: number;
  paired: boolean;
  format: (value: number) => string;
}) {
  const label = <Token text={row.label} position={row.position ?? null} />;
  return (
    <tr class={row.marked ? "bars-marked" : undefined}>
      <th scope="row">
        {row.onPick ? (
          <button type="button" class="bars-pick" aria-pressed={row.marked ?? false} onClick={row.onPick}>
            {label}
          </button>
        ) : (
          label
        )}
      </th>
      <td class="bars-track" aria-hidden="true">
        {paired && <Stroke kind="before" value={row.before ?? null} full={full} />}
        <Stroke kind={paired ? "after" : "only"} value={row.value} full={full} />
      </td>
      <td class="bars-number">
        {paired && <span class="bars-was">{shown(row.before ?? null, format)}</span>}
        <span>{shown(row.value, format)}</span>
      </td>
    </tr>
  );
}

function Stroke({ kind, value, full }: { kind: string; value: number | null; full: number }) {
  if (value === null || !Number.isFinite(value)) return <i class={`bar bar-none bar-${kind}`} />;
  const share = Math.min(1, Math.abs(value) / full);
  return <i class={`bar bar-${kind}${value < 0 ? " bar-minus" : ""}`} style={{ "--share": share.toFixed(4) }} />;
}

function shown(value: number | null, format: (value: number) => string): string {
  return value === null ? "–" : format(value);
}

function Key({ names }: { names: readonly [string, string] }) {
  return (
    <span class="bars-key" aria-hidden="true">
      <i class="bar-before" /> {names[0]} <i class="bar-after" /> {names[1]}
    </span>
  );
}
