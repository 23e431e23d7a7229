import { useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";

import { isDark } from "../../parts/theme";
import type { TextLayout } from "./layout";
import { heat } from "./light";
import type { TextModel } from "./model";

interface StripProps {
  model: TextModel;
  layout: TextLayout;
  height: number;
  /** Bring a share of the text to the middle of the screen. */
  onGo(share: number): void;
}

/** The whole text beside its scroll bar: where the light is, on the screen or off it. */
export function HeatStrip({ model, layout, height, onGo }: StripProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useSignalEffect(() => {
    const light = model.light.value;
    const most = model.top.value[0]?.weight ?? 0;
    const shown = model.shown.value;
    const scale = model.state.scale.value;
    void isDark();
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context) return;
    const rows = Math.max(1, Math.round(height));
    const wide = canvas.current.clientWidth || 14;
    [canvas.current.width, canvas.current.height] = [wide, rows];
    const style = getComputedStyle(canvas.current);
    if (light) {
      context.fillStyle = style.getPropertyValue(model.direction.value === "queries" ? "--query-glow" : "--key-glow");
      heat(layout, light, most, scale, rows).forEach((bright, row) => {
        context.globalAlpha = bright;
        context.fillRect(0, row, wide, 1);
      });
    }
    if (shown !== null && shown < layout.lineOf.length && !model.open.apart) {
      context.globalAlpha = 1;
      context.fillStyle = style.getPropertyValue(model.direction.value === "queries" ? "--key" : "--query");
      context.fillRect(0, Math.round((layout.lineOf[shown]! / layout.lines.length) * rows) - 1, wide, 3);
    }
  });
  const go = (event: PointerEvent): void => {
    const rect = canvas.current!.getBoundingClientRect();
    onGo((event.clientY - rect.top) / rect.height);
  };
  return (
    <canvas
      ref={canvas}
      class="heat-strip"
      width={1}
      height={1}
      role="img"
      aria-label="Where light is in the whole text. The list beside it names the brightest tokens."
      title="Where light is in the whole text; click to go there"
      data-testid="heat-strip"
      onPointerDown={(event) => {
        canvas.current!.setPointerCapture(event.pointerId);
        go(event);
      }}
      onPointerMove={(event) => event.buttons > 0 && go(event)}
    />
  );
}
