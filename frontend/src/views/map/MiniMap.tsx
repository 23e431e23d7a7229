import { useSignalEffect } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { paint } from "../../parts/colour";
import { Keyed, keyOf } from "../../parts/keyed";
import { isDark } from "../../parts/theme";
import type { Grid, MapRef } from "../../source/source";
import { clearForbidden, topLevel } from "./geometry";
import type { MapModel } from "./model";

const SIDE = 116;

/** The whole map, small, with a frame where the reader is; click or drag to go elsewhere. */
export function MiniMap({ model, map }: { model: MapModel; map: MapRef }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const answered = useMemo(() => new Keyed<Grid>(), []);
  const { queries, keys } = model.open.stack;
  const unit = SIDE / Math.max(queries, keys);
  const how = model.state.how.value;
  const causal = model.causal.value;
  const level = topLevel(queries, keys);
  const question = keyOf(map, how);
  const grid = answered.get(question);

  useEffect(() => {
    if (causal === null) return;
    let current = true;
    model
      .overview(map)
      .then((answer) => {
        if (current) answered.set(question, answer);
      })
      .catch(() => undefined); // the map itself says what went wrong
    return () => {
      current = false;
    };
  }, [model, question, causal, model.attempt.value]);

  const colours = model.colours.value;
  const dark = isDark();
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    if (!grid) return context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    const { rows, cols, values } = grid;
    const image = context.createImageData(cols, rows);
    const pixels = new Uint32Array(image.data.buffer);
    paint(values, pixels, colours);
    clearForbidden(pixels, rows, cols, model.mask(map), { level, row: 0, col: 0 });
    context.canvas.width = cols;
    context.canvas.height = rows;
    context.putImageData(image, 0, 0);
  }, [grid, colours, dark, causal]);

  useSignalEffect(() => {
    const camera = model.camera.value;
    const stage = [...model.stages][0];
    if (!camera || !frame.current || !stage) return;
    const { width, height } = stage.size;
    const clamp = (value: number, most: number): number => Math.min(most, Math.max(0, value));
    const left = clamp((camera.x - width / 2 / camera.scale) * unit, keys * unit);
    const right = clamp((camera.x + width / 2 / camera.scale) * unit, keys * unit);
    const top = clamp((camera.y - height / 2 / camera.scale) * unit, queries * unit);
    const bottom = clamp((camera.y + height / 2 / camera.scale) * unit, queries * unit);
    const style = frame.current.style;
    style.left = `${Math.min(left, keys * unit - 4)}px`;
    style.top = `${Math.min(top, queries * unit - 4)}px`;
    style.width = `${Math.max(5, right - left)}px`;
    style.height = `${Math.max(5, bottom - top)}px`;
  });

  const go = (event: PointerEvent): void => {
    if (event.type === "pointermove" && event.buttons === 0) return;
    const rect = canvas.current!.getBoundingClientRect();
    const camera = model.camera.peek();
    if (!camera) return;
    const leader = model.leader ?? [...model.stages][0];
    leader?.moveTo({ ...camera, x: (event.clientX - rect.left) / unit, y: (event.clientY - rect.top) / unit });
  };
  return (
    <div
      class="minimap"
      data-testid="minimap"
      role="img"
      aria-label="The whole map, with a frame around what is shown"
      onPointerDown={go}
      onPointerMove={go}
      style={{ width: `${keys * unit}px`, height: `${queries * unit}px` }}
    >
      <canvas ref={canvas} />
      <div class="minimap-frame" ref={frame} />
    </div>
  );
}
