import "./map.css";

import { useSignalEffect } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { useOpen } from "../../context";
import { useExporter } from "../../export/exporter";
import { Failure } from "../../parts/failure";
import { Progress } from "../../parts/progress";
import { loadThumbs } from "../../parts/thumbs";
import type { MapRef, Source } from "../../source/source";
import { mapRef, useViewState } from "../../state";
import { ColourCard, OverlayCard } from "./Controls";
import { EvidenceCard } from "./EvidenceCard";
import { mapExporter } from "./exporting";
import { offerHooks } from "./hooks";
import { Jump } from "./Jump";
import { MiniMap } from "./MiniMap";
import { MapModel } from "./model";
import { Pane } from "./Pane";
import { Readout } from "./Readout";
import { RegionCard } from "./RegionCard";

/** The map of a head, from all of a document down to one weight. */
export function MapView({ source }: { source: Source }) {
  const state = useViewState();
  const open = useOpen();
  const model = useMemo(() => new MapModel(source, state, open), [source, open.recording.id, open.stack.role]);
  const map = mapRef(state);
  const beside = model.beside.value;

  useThumbs(model);
  useEffect(() => {
    model.learnMask(mapRef(state)).catch((error: unknown) => {
      model.failure.value = error instanceof Error ? error.message : String(error);
      model.causal.value = false;
    });
  }, [model]);
  useSignalEffect(() => {
    void model.attempt.value;
    if (model.causal.value !== null) model.learnPeak(mapRef(model.state)).catch(() => undefined);
  });
  useFollow(model);
  const panes = useRef<HTMLDivElement>(null);
  useExporter(
    state,
    useMemo(() => mapExporter(model, () => panes.current), [model]),
  );
  useEffect(() => offerHooks(model), [model]);

  return (
    <div class="map-view">
      <div
        ref={panes}
        class={`panes ${beside ? "both" : ""}`}
        tabIndex={0}
        role="application"
        aria-label="Attention map. Arrow keys move the cross-hair, plus and minus zoom, zero shows all, Enter reads the cell."
        aria-describedby="map-live"
        data-testid="map"
        onKeyDown={(event) => onKey(event, model)}
      >
        <Pane model={model} map={map} label={nameOf(map)} />
        {beside && <Pane model={model} map={beside} label={nameOf(beside)} />}
        <div class="map-float">
          <MiniMap model={model} map={map} />
          <ZoomButtons model={model} />
        </div>
      </div>
      <aside class="side" aria-label="About the map">
        {model.failure.value && <Failure small text={model.failure.value} onRetry={() => model.attempt.value++} />}
        <Waiting source={source} />
        <Readout model={model} />
        <ColourCard model={model} />
        <Jump model={model} />
        {(model.exact || model.box.value) && <RegionCard model={model} />}
        <OverlayCard model={model} />
        <EvidenceCard model={model} map={map} />
      </aside>
      <Live model={model} />
    </div>
  );
}

/** Pictures of patches for the axes; without them patches keep their names. */
function useThumbs(model: MapModel): void {
  const { recording, stack } = model.open;
  useEffect(() => {
    if (!recording.pictures.includes(stack.role)) return;
    const stop = new AbortController();
    loadThumbs(model.source, recording.id, stack.role, stop.signal)
      .then((thumbs) => {
        if (!stop.signal.aborted) model.thumbs.value = thumbs;
      })
      .catch(() => undefined);
    return () => stop.abort();
  }, [model]);
}

/** How far the overview of a long text is that is looked at for the first time. */
function Waiting({ source }: { source: Source }) {
  const jobs = source.waiting.value;
  if (jobs.length === 0) return null;
  return (
    <section class="card" aria-label="Work under way">
      {jobs.map(({ id, state, done, total, seconds_left }) => (
        <Progress
          key={id}
          label={state === "waiting" ? "Making the overview, after other work…" : "Making the overview…"}
          done={done}
          total={total}
          secondsLeft={seconds_left}
          onCancel={() => void source.cancelJob(id)}
        />
      ))}
    </section>
  );
}

function nameOf(map: MapRef): string {
  return `layer ${map.layer}, head ${map.head}`;
}

/** Move when the address says so: the back button, a link, another part of the page. */
function useFollow(model: MapModel): void {
  const { x, y, z } = model.state;
  useEffect(() => {
    const camera = model.camera.peek();
    const leader = model.leader ?? [...model.stages][0];
    if (!camera || !leader || model.echoed) return;
    if (x.value === null || y.value === null || z.value === null) {
      leader.moveTo(leader.whole());
      return;
    }
    const wanted = { x: x.value, y: y.value, scale: 2 ** z.value };
    const far =
      Math.abs(wanted.x - camera.x) * camera.scale > 1 ||
      Math.abs(wanted.y - camera.y) * camera.scale > 1 ||
      Math.abs(wanted.scale / camera.scale - 1) > 0.01;
    if (far) leader.moveTo(wanted);
  }, [x.value, y.value, z.value]);
}

function onKey(event: KeyboardEvent, model: MapModel): void {
  if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
  const leader = model.leader ?? [...model.stages][0];
  const far = event.shiftKey ? 8 : 1;
  const acts: Record<string, () => void> = {
    ArrowUp: () => model.step(-far, 0),
    ArrowDown: () => model.step(far, 0),
    ArrowLeft: () => model.step(0, -far),
    ArrowRight: () => model.step(0, far),
    "+": () => leader?.zoomBy(1.6, model.pinned.value ?? undefined),
    "=": () => leader?.zoomBy(1.6, model.pinned.value ?? undefined),
    "-": () => leader?.zoomBy(1 / 1.6, model.pinned.value ?? undefined),
    "0": () => leader?.moveTo(leader.whole()),
    Enter: () => readHere(model),
    Escape: () => model.pick(null),
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

/** Enter: read the cell at the cross-hair, close enough that it is one square. */
function readHere(model: MapModel): void {
  model.hover.value = null;
  const camera = model.camera.peek();
  if (!model.pinned.peek()) model.step(0, 0);
  const spot = model.pinned.peek();
  if (spot && camera && camera.scale < 12) model.center(spot.query, spot.key);
}

function ZoomButtons({ model }: { model: MapModel }) {
  const leader = () => model.leader ?? [...model.stages][0];
  const at = () => model.pinned.value ?? undefined;
  return (
    <div class="zoom" role="group" aria-label="Zoom">
      <button type="button" class="icon-button" aria-label="Zoom in" onClick={() => leader()?.zoomBy(2, at())}>
        +
      </button>
      <button type="button" class="icon-button" aria-label="Zoom out" onClick={() => leader()?.zoomBy(0.5, at())}>
        −
      </button>
      <button
        type="button"
        class="icon-button"
        aria-label="Show the whole map"
        title="Whole map (0)"
        data-testid="whole"
        onClick={() => leader()?.moveTo(leader()!.whole())}
      >
        <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
          <path d="M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4" fill="none" stroke="currentColor" stroke-width="1.6" />
        </svg>
      </button>
    </div>
  );
}

/** For screen readers: where the cross-hair is. */
function Live({ model }: { model: MapModel }) {
  const spot = model.pinned.value;
  return (
    <p id="map-live" class="visually-hidden" aria-live="polite">
      {spot
        ? `Query ${spot.query}, “${model.open.queryTokens.label(spot.query)}”; key ${spot.key}, “${model.open.tokens.label(spot.key)}”.`
        : "No cell chosen."}
    </p>
  );
}
