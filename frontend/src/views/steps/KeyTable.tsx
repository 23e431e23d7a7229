/** The keys one below the other, gaining one column of numbers with every step. */

import { figure } from "../../parts/grid";
import { Token } from "../../parts/token-chip";
import { gapBefore, left, pick, type Walk } from "./walk";

export type Column = "scores" | "scaled" | "masked" | "weights";
const ORDER: readonly Column[] = ["scores", "scaled", "masked", "weights"];
const HEADS: Record<Column, string> = { scores: "q · k", scaled: "scaled", masked: "masked", weights: "weight" };

export interface KeyTableProps {
  walk: Walk;
  at: Column;
  /** Rows shown unless all are asked for. */
  most: number;
  focus: number;
  onFocus(row: number): void;
}

export function KeyTable({ walk, at, most, focus, onFocus }: KeyTableProps) {
  const shown = pick(walk, most);
  const more = left(walk, shown);
  const columns = ORDER.slice(0, ORDER.indexOf(at) + 1).filter((name) => name !== "masked" || walk.hasMask);
  const now = walk[at];
  const finite = shown.map((i) => Math.abs(now[i] ?? 0)).filter(Number.isFinite);
  const top = Math.max(1e-9, ...finite);
  const signed = at !== "weights" && shown.some((i) => Number.isFinite(now[i]) && now[i]! < 0);
  return (
    <table class={`ladder${signed ? " ladder-signed" : ""}`} data-testid="key-table">
      <thead>
        <tr>
          <th scope="col">key</th>
          {columns.map((name) => (
            <th key={name} scope="col" class={name === at ? "now" : "past"}>
              {HEADS[name]}
            </th>
          ))}
          <td class="ladder-bar" />
        </tr>
      </thead>
      <tbody>
        {shown.map((i, n) => (
          <Line
            key={i}
            walk={walk}
            i={i}
            columns={columns}
            at={at}
            top={top}
            gap={gapBefore(walk, shown, n)}
            focused={i === focus}
            onFocus={onFocus}
          />
        ))}
        {more > 0 && (
          <tr>
            <td class="grid-more" colSpan={columns.length + 2}>
              … and {more.toLocaleString("en")} more keys
            </td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

interface LineProps {
  walk: Walk;
  i: number;
  columns: readonly Column[];
  at: Column;
  top: number;
  gap: number;
  focused: boolean;
  onFocus(row: number): void;
}

function Line({ walk, i, columns, at, top, gap, focused, onFocus }: LineProps) {
  const key = walk.keys[i]!;
  const value = walk[at][i] ?? NaN;
  const share = Number.isFinite(value) ? Math.abs(value) / top : 0;
  const forbidden = !key.allowed && (at === "masked" || at === "weights");
  return (
    <tr
      class={`${focused ? "ladder-focus" : ""}${forbidden ? " ladder-forbidden" : ""}`}
      data-gap={gap > 0 ? gap : undefined}
      onPointerEnter={(event) => event.pointerType === "mouse" && onFocus(i)}
    >
      <th scope="row">
        <button
          type="button"
          class="bars-pick"
          aria-pressed={focused}
          title={`work out ${key.token}`}
          onClick={() => onFocus(i)}
          onFocus={() => onFocus(i)}
        >
          <Token text={key.token} role={i === walk.self ? "query" : "key"} position={key.position} />
        </button>
      </th>
      {columns.map((name) => (
        <td key={name} class={name === at ? "now" : "past"}>
          {figure(walk[name][i] ?? NaN, name === "weights" ? 3 : 2)}
        </td>
      ))}
      <td class="ladder-bar" aria-hidden="true">
        {forbidden ? (
          <span class="hatched">not allowed</span>
        ) : (
          <i class={`bar${value < 0 ? " bar-minus" : ""}`} style={{ "--share": share.toFixed(4) }} />
        )}
      </td>
    </tr>
  );
}
