import { effect, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { sentence } from "../../parts/answer";
import { isDark } from "../../parts/theme";
import type { MapRef } from "../../source/source";
import type { Camera } from "./geometry";
import type { MapModel } from "./model";
import { numbersOn, paintNumbers, ROOM } from "./numbers";
import { type Inks, overlayShapes } from "./overlay";
import { type AxisScene, paintAxis, paintForbidden, paintGround, prepare, readInks } from "./paper";
import { paintShapes } from "./shapes";
import { MapStage } from "./stage";
import { MapTiles } from "./tiles";

/** Milliseconds after which the map is shown without its overview; one that is stored comes sooner. */
const PATIENCE = 500;

/** One head's map with its two axes; all panes of a view share the model's camera and cross-hair. */
export function Pane({ model, map, label }: { model: MapModel; map: MapRef; label: string }) {
  const host = useRef<HTMLDivElement>(null);
  const canvases = {
    under: useRef<HTMLCanvasElement>(null),
    over: useRef<HTMLCanvasElement>(null),
    top: useRef<HTMLCanvasElement>(null),
    left: useRef<HTMLCanvasElement>(null),
  };
  const stage = useRef<MapStage | null>(null);
  const latest = useRef(map);
  // Read once per theme: asking for a computed style in every frame makes the browser lay the page out again.
  const inks = useRef<{ dark: boolean; read: Inks } | null>(null);
  latest.current = map;

  const redraw = (camera: Camera | null): void => {
    if (!camera || !host.current) return;
    const dark = isDark();
    if (inks.current?.dark !== dark) inks.current = { dark, read: readInks(host.current) };
    const ratio = stage.current?.ratio ?? (devicePixelRatio || 1);
    drawAround(model, latest.current, camera, host.current, inks.current.read, ratio, {
      under: canvases.under.current,
      over: canvases.over.current,
      top: canvases.top.current,
      left: canvases.left.current,
    });
  };

  useEffect(() => {
    if (!host.current) return;
    const made = createStage(host.current, model, () => latest.current, redraw);
    stage.current = made;
    return () => {
      stage.current = null;
      model.stages.delete(made);
      if (model.leader === made) model.leader = null;
      made.dispose();
    };
  }, [model]);

  const { rec, role, layer, head } = map;
  const how = model.state.how.value;
  const causal = model.causal.value;
  useEffect(() => {
    if (causal === null || !stage.current) return;
    return showTiles(model, map, stage.current);
  }, [model, rec, role, layer, head, how, causal, model.attempt.value]);

  useEffect(
    () =>
      effect(() => {
        const colours = model.colours.value;
        stage.current?.recolour(colours);
      }),
    [model],
  );

  useSignalEffect(() => {
    // Everything that is drawn around the tiles, whatever of it changed.
    void [
      model.hover.value,
      model.pinned.value,
      model.box.value,
      model.overlays.value,
      model.causal.value,
      model.marks(latest.current),
      model.thumbs.value,
      isDark(),
    ];
    const camera = model.camera.value;
    if (camera && camera.scale >= ROOM) void model.store.arrived.value;
    if (camera && stage.current && model.leader !== stage.current && model.leader) stage.current.moveTo(camera, true);
    redraw(camera);
  });

  return (
    <div class="pane" aria-label={label} role="group">
      <div class="pane-corner" aria-hidden="true">
        <span class="corner-key">keys →</span>
        <span class="corner-query">queries ↓</span>
      </div>
      <canvas class="axis-top" ref={canvases.top} aria-hidden="true" />
      <canvas class="axis-left" ref={canvases.left} aria-hidden="true" />
      <div class="stage">
        <canvas class="layer" ref={canvases.under} aria-hidden="true" />
        <div class="layer osd" ref={host} />
        <canvas class="layer over" ref={canvases.over} aria-hidden="true" />
        <span class="pane-label">{label}</span>
      </div>
    </div>
  );
}

/** All tiles once there is an overview; exact ones before that, where an overview takes its time. Returns how to stop. */
function showTiles(model: MapModel, map: MapRef, stage: MapStage): () => void {
  let current = true;
  const fail = (error: unknown): void => {
    if (current) model.failure.value = sentence(error);
  };
  const show = (coarse: boolean): void => {
    if (!current) return;
    const tiles = new MapTiles(
      model.store,
      map,
      model.mask(map),
      model.state.how.peek(),
      model.colours.peek(),
      coarse,
      fail,
    );
    stage.show(tiles, model.camera.peek() ?? cameraOf(model));
  };
  stage.blank();
  const release = model.store.hold(map);
  const early = setTimeout(() => show(false), PATIENCE);
  model.failure.value = null;
  model
    .overview(map)
    .then(() => show(true), fail)
    .finally(() => clearTimeout(early));
  return () => {
    current = false;
    clearTimeout(early);
    release();
  };
}

function cameraOf(model: MapModel): Camera | null {
  const { x, y, z } = model.state;
  if (x.peek() === null || y.peek() === null || z.peek() === null) return null;
  return { x: x.peek()!, y: y.peek()!, scale: 2 ** z.peek()! };
}

function createStage(
  host: HTMLElement,
  model: MapModel,
  shown: () => MapRef,
  redraw: (camera: Camera) => void,
): MapStage {
  const lead = (): void => {
    model.leader = stage;
  };
  const stage = new MapStage(
    host,
    {
      onCamera(camera) {
        if (model.leader === null) model.leader = stage;
        if (model.leader === stage) model.camera.value = camera;
        else redraw(camera);
      },
      onRest(camera) {
        if (model.leader === stage) model.settle(camera, stage.whole());
      },
      onHover(spot) {
        model.hover.value = spot;
      },
      onPick(spot) {
        model.choose(shown(), spot).catch((error: unknown) => {
          model.failure.value = sentence(error);
        });
      },
      onBrush(box, done) {
        model.box.value = box;
        if (done) model.brushing.value = false;
      },
      brushing: () => model.brushing.value,
    },
    model.open.stack,
  );
  host.addEventListener("pointerdown", lead, true);
  host.addEventListener("wheel", lead, { capture: true, passive: true });
  model.stages.add(stage);
  return stage;
}

interface Sheets {
  under: HTMLCanvasElement | null;
  over: HTMLCanvasElement | null;
  top: HTMLCanvasElement | null;
  left: HTMLCanvasElement | null;
}

/** `ratio`: of the two sheets over the map; names on the axes stay sharp. */
function drawAround(
  model: MapModel,
  map: MapRef,
  camera: Camera,
  host: HTMLElement,
  inks: Inks,
  ratio: number,
  sheets: Sheets,
): void {
  const size = { width: host.clientWidth, height: host.clientHeight };
  if (size.width === 0) return;
  const mask = model.mask(map);
  const { tokens, stack } = model.open;
  const under = sheets.under && prepare(sheets.under, ratio);
  if (under) paintGround(under, camera, size, mask, inks);
  const over = sheets.over && prepare(sheets.over, ratio);
  const scene = {
    camera,
    size,
    mask,
    documents: stack.documents,
    overlays: model.overlays.value,
    hover: model.hover.value,
    pinned: model.pinned.value,
    box: model.box.value,
    marks: model.marks(map),
  };
  if (over && model.source.kind === "static") paintForbidden(over, camera, size, mask, inks);
  if (over) {
    const tile = (query: number, key: number): number | null => model.exactValue(map, query, key);
    paintNumbers(over, numbersOn(camera, size, mask, model.colours.value, tile));
    paintShapes(over, overlayShapes(scene, inks));
  }
  const spot = scene.hover ?? scene.pinned;
  const axis = { camera, size, spot };
  const top = sheets.top && prepare(sheets.top);
  if (top)
    paintAxis(
      top,
      sheets.top!.clientHeight,
      { ...axis, side: "top", count: stack.keys, tokens, sections: model.sections, thumbs: model.thumbs.value },
      inks,
    );
  const queries: AxisScene = {
    ...axis,
    side: "left",
    count: stack.queries,
    tokens: model.open.queryTokens,
    sections: model.querySections,
    thumbs: model.queryThumbs,
  };
  const left = sheets.left && prepare(sheets.left);
  if (left) paintAxis(left, sheets.left!.clientWidth, queries, inks);
}
