import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { TokenTable } from "../../parts/tokens";
import { HeatStrip } from "./HeatStrip";
import { isRightToLeft, layOut, printed, type TextLayout } from "./layout";
import { brightness, type Lit } from "./light";
import type { TextModel } from "./model";

export const LINE_HEIGHT = 36;
const MARGIN = 12;
const OVERSCAN = 6;

/** What a page is for: picking a token, showing what lights up, or both where there is but one text. */
export type Part = "both" | "picked" | "lit";

interface PageProps {
  model: TextModel;
  part: Part;
  label: string;
  onLayout(layout: PageLayout | null): void;
}

/** The document itself, of any length: only the lines on screen are in the page. */
export function Page({ model, part, label, onLayout }: PageProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [height, setHeight] = useState(600);
  const top = useSignal(0);

  useLayoutEffect(() => {
    const element = scroller.current!;
    const read = (): void => {
      const { paddingLeft, paddingRight } = getComputedStyle(element);
      setWidth(element.clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight));
      setHeight(element.clientHeight);
    };
    const watch = new ResizeObserver(read);
    watch.observe(element);
    read();
    return () => watch.disconnect();
  }, []);

  const tokens = part === "lit" ? model.lit : model.picked;
  const layout = useMemo(
    () => (width > 0 ? layOut(tokens, width - 2 * MARGIN, measurer(scroller.current!)) : null),
    [tokens, width],
  );
  useScrollTo(part === "lit" ? brightest(model) : model.chosen, layout, scroller, height);

  const first = Math.max(0, Math.floor(top.value / LINE_HEIGHT) - OVERSCAN);
  const last = Math.min(layout?.lines.length ?? 0, Math.ceil((top.value + height) / LINE_HEIGHT) + OVERSCAN);
  useEffect(() => {
    const onScreen = Math.ceil((top.peek() + height) / LINE_HEIGHT);
    onLayout(
      layout && {
        layout,
        tokens,
        part,
        first: Math.floor(top.peek() / LINE_HEIGHT),
        last: Math.min(last, onScreen),
        width,
      },
    );
  }, [layout, first, last]);

  const go = (share: number): void => {
    if (scroller.current) scroller.current.scrollTop = share * scroller.current.scrollHeight - height / 2;
  };
  return (
    <div class="page-frame">
      <div
        ref={scroller}
        class="page"
        data-testid={part === "lit" ? "page-lit" : "page"}
        tabIndex={0}
        role="listbox"
        aria-label={`${label}. Arrow keys move from token to token.`}
        aria-activedescendant={
          part === "lit" || model.chosen.value === null ? undefined : `token-${model.chosen.value}`
        }
        onScroll={(event) => (top.value = event.currentTarget.scrollTop)}
        onKeyDown={(event) => part !== "lit" && onKey(event, model, layout)}
        onPointerLeave={() => (model.hover.value = null)}
        onClick={(event) => {
          const token = tokenOf(event.target);
          if (token === null) return;
          if (part === "lit") model.follow(token);
          else model.choose(token);
        }}
        onPointerMove={(event) => {
          if (event.pointerType === "touch" || part === "lit") return;
          const token = tokenOf(event.target);
          model.hover.value = token !== null && model.offers(token) ? token : null;
        }}
      >
        {layout && (
          <div class="page-sheet" style={{ height: `${layout.lines.length * LINE_HEIGHT + 2 * MARGIN}px` }}>
            {Array.from({ length: Math.max(0, last - first) }, (_, i) => (
              <TextLine key={first + i} model={model} part={part} tokens={tokens} layout={layout} line={first + i} />
            ))}
            {model.arcs.value === "on" && part === "both" && (
              <Arcs model={model} layout={layout} first={first} last={last} />
            )}
          </div>
        )}
      </div>
      {layout && part !== "picked" && <HeatStrip model={model} layout={layout} height={height} onGo={go} />}
    </div>
  );
}

export interface PageLayout {
  layout: TextLayout;
  tokens: TokenTable;
  part: Part;
  first: number;
  last: number;
  width: number;
}

function tokenOf(target: EventTarget | null): number | null {
  const index = target instanceof HTMLElement ? target.dataset.i : undefined;
  return index === undefined ? null : Number(index);
}

/** Widths as the page will have them: same font, on a canvas. */
function measurer(element: HTMLElement): (text: string) => number {
  const context = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(element);
  if (!context) return (text) => text.length * 9;
  context.font = `${style.fontSize} ${style.fontFamily}`;
  return (text) => context.measureText(text).width + 0.6;
}

interface LineProps {
  model: TextModel;
  part: Part;
  tokens: TokenTable;
  layout: TextLayout;
  line: number;
}

function TextLine({ model, part, tokens, layout, line }: LineProps) {
  const { start, stop } = layout.lines[line]!;
  const weights = part === "picked" ? null : model.light.value;
  const most = model.top.value[0]?.weight ?? 0;
  const shown = part === "lit" ? null : model.shown.value;
  const scale = model.state.scale.value;
  return (
    <div class={`text-line look-${model.direction.value}`} style={{ top: `${MARGIN + line * LINE_HEIGHT}px` }}>
      {Array.from({ length: stop - start }, (_, offset) => {
        const i = start + offset;
        const light = weights ? brightness(weights[i] ?? 0, most, scale) : 0;
        return (
          <span
            key={i}
            id={`${part === "lit" ? "lit" : "token"}-${i}`}
            class={i === shown ? "word shown" : "word"}
            role="option"
            aria-selected={part !== "lit" && i === model.chosen.value}
            data-i={i}
            dir={isRightToLeft(tokens.raw(i)) ? "rtl" : undefined}
            data-weight={weights?.[i]}
            style={{
              left: `${MARGIN + layout.lefts[i]!}px`,
              width: `${layout.widths[i]!}px`,
              ...(light > 0.004 ? { "--light": light.toFixed(3) } : {}),
            }}
          >
            {printed(tokens.raw(i))}
          </span>
        );
      })}
    </div>
  );
}

/** Middle of a token on the sheet. */
export function placeOf(layout: TextLayout, i: number): [x: number, y: number] {
  return [MARGIN + layout.lefts[i]! + layout.widths[i]! / 2, MARGIN + (layout.lineOf[i]! + 0.5) * LINE_HEIGHT];
}

/** From the token shown to the heaviest tokens among the lines on screen. */
export function arcPath([x1, y1]: [number, number], [x2, y2]: [number, number]): string {
  if (Math.abs(y1 - y2) < 1) {
    const lift = Math.min(LINE_HEIGHT * 1.4, 12 + Math.abs(x1 - x2) * 0.12);
    return `M${x1},${y1 - 11}C${x1},${y1 - 11 - lift} ${x2},${y2 - 11 - lift} ${x2},${y2 - 11}`;
  }
  const up = y2 < y1 ? 1 : -1;
  const from = y1 - 11 * up;
  const to = y2 + 11 * up;
  const middle = (from + to) / 2;
  return `M${x1},${from}C${x1},${middle} ${x2},${middle} ${x2},${to}`;
}

function Arcs({ model, layout, first, last }: { model: TextModel; layout: TextLayout; first: number; last: number }) {
  const from = model.light.value ? model.shown.value : null;
  if (from === null || from >= model.open.tokens.count) return null;
  const near = (lit: Lit): boolean => {
    const line = layout.lineOf[lit.index] ?? 0;
    return lit.index !== from && line >= first && line < last;
  };
  const most = model.top.value[0]?.weight ?? 1;
  return (
    <svg class={`arcs look-${model.direction.value}`} aria-hidden="true">
      {model.top.value.filter(near).map(({ index, weight }) => (
        <path
          key={index}
          d={arcPath(placeOf(layout, from), placeOf(layout, index))}
          stroke-width={1 + 3 * Math.sqrt(weight / most)}
          opacity={0.3 + 0.6 * Math.sqrt(weight / most)}
        />
      ))}
    </svg>
  );
}

/** The token that lights up most, once the light is there. */
function brightest(model: TextModel): { readonly value: number | null; peek(): number | null } {
  return {
    get value() {
      return model.top.value[0]?.index ?? null;
    },
    peek: () => model.top.peek()[0]?.index ?? null,
  };
}

function useScrollTo(
  wanted: { readonly value: number | null; peek(): number | null },
  layout: TextLayout | null,
  scroller: { current: HTMLDivElement | null },
  height: number,
): void {
  const bring = (token: number | null): void => {
    const element = scroller.current;
    if (!element || !layout || token === null || token >= layout.lineOf.length) return;
    const y = MARGIN + layout.lineOf[token]! * LINE_HEIGHT;
    if (y < element.scrollTop || y + LINE_HEIGHT > element.scrollTop + height)
      element.scrollTop = Math.max(0, y - height / 3);
  };
  useEffect(() => bring(wanted.peek()), [layout]);
  useSignalEffect(() => bring(wanted.value));
}

function onKey(event: KeyboardEvent, model: TextModel, layout: TextLayout | null): void {
  if (!layout || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = model.chosen.peek() ?? 0;
  const count = model.picked.count;
  const line = layout.lineOf[at] ?? 0;
  const moves: Record<string, () => number> = {
    ArrowLeft: () => at - 1,
    ArrowRight: () => at + 1,
    ArrowUp: () => nearest(layout, line - 1, layout.lefts[at]!),
    ArrowDown: () => nearest(layout, line + 1, layout.lefts[at]!),
    Home: () => 0,
    End: () => count - 1,
  };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  model.hover.value = null;
  model.choose(Math.min(count - 1, Math.max(0, model.chosen.peek() === null ? 0 : move())));
}

/** The token of a line that stands nearest to a place; empty lines are passed over. */
function nearest(layout: TextLayout, line: number, left: number): number {
  const step = line < 0 ? 1 : -1;
  let at = Math.min(layout.lines.length - 1, Math.max(0, line));
  while (layout.lines[at] && layout.lines[at]!.start === layout.lines[at]!.stop) at += step;
  const { start, stop } = layout.lines[at] ?? { start: 0, stop: 1 };
  let best = start;
  for (let i = start; i < stop; i++) {
    if (Math.abs(layout.lefts[i]! - left) < Math.abs(layout.lefts[best]! - left)) best = i;
  }
  return best;
}
