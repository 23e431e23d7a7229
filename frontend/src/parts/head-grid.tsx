/** Layers × heads as one picture: a coloured cell for every head, with the keyboard to walk it. */

import { useRef } from "preact/hooks";
import "./head-grid.css";

export interface HeadAt {
  layer: number;
  head: number;
}

export interface HeadGridProps {
  title: string;
  layers: readonly number[];
  heads: number;
  /** The colour of a head, and the ink that reads on it; `at` counts layers from 0. */
  colour(at: number, head: number): string;
  /** What a cell says to those who cannot see it, and in its tooltip. */
  label(at: number, head: number): string;
  /** A short text inside the cell, where there is room. */
  note?(at: number, head: number): preact.ComponentChildren;
  chosen: HeadAt | null;
  onLook(at: HeadAt): void;
  onOpen(at: HeadAt): void;
}

/** From so many heads on there is no room for a text in a cell. */
const ROOM = 16;

export function HeadGrid({ title, layers, heads, colour, label, note, chosen, onLook, onOpen }: HeadGridProps) {
  const grid = useRef<HTMLDivElement>(null);
  const row = Math.max(0, layers.indexOf(chosen?.layer ?? layers[0] ?? 0));
  const column = Math.min(heads - 1, chosen?.head ?? 0);
  const move = (event: KeyboardEvent): void => {
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      Home: [0, -heads],
      End: [0, heads],
    };
    const by = steps[event.key];
    if (!by) return;
    event.preventDefault();
    const to = { at: clamp(row + by[0], layers.length), head: clamp(column + by[1], heads) };
    onLook({ layer: layers[to.at]!, head: to.head });
    grid.current?.querySelector<HTMLElement>(`[data-at="${to.at}.${to.head}"]`)?.focus();
  };
  return (
    <div class="head-grid-scroll">
      <div
        ref={grid}
        class={`head-grid${heads > ROOM ? " head-grid-small" : ""}`}
        role="grid"
        aria-label={title}
        data-testid="head-grid"
        style={{ "--heads": heads }}
        onKeyDown={move}
      >
        <div role="row" class="head-grid-row">
          <span role="columnheader" class="head-grid-name">
            layer
          </span>
          {Array.from({ length: heads }, (_, h) => (
            <span key={h} role="columnheader" class="head-grid-name">
              {h}
            </span>
          ))}
        </div>
        {layers.map((layer, i) => (
          <div key={layer} role="row" class="head-grid-row">
            <span role="rowheader" class="head-grid-name">
              {layer}
            </span>
            {Array.from({ length: heads }, (_, h) => {
              const here = chosen?.layer === layer && chosen.head === h;
              const back = colour(i, h);
              return (
                <button
                  key={h}
                  type="button"
                  role="gridcell"
                  class="head-cell"
                  data-at={`${i}.${h}`}
                  data-testid={`cell-${layer}-${h}`}
                  aria-selected={here}
                  aria-label={label(i, h)}
                  title={label(i, h)}
                  tabIndex={i === row && h === column ? 0 : -1}
                  style={{ background: back }}
                  onPointerEnter={(event) => event.pointerType === "mouse" && onLook({ layer, head: h })}
                  onFocus={() => onLook({ layer, head: h })}
                  onClick={() => onOpen({ layer, head: h })}
                >
                  {heads <= ROOM && note?.(i, h)}
                </button>
              );
            })}
          </div>
        ))}
      </div>
    </div>
  );
}

function clamp(value: number, count: number): number {
  return Math.min(count - 1, Math.max(0, value));
}
