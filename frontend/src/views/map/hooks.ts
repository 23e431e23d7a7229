import { mapRef } from "../../state";
import { isAllowed, TILE } from "./geometry";
import type { MapModel } from "./model";

/** What tests, and curious readers at the console, can ask of the map on screen: `window.regard.map`. */
export interface MapHooks {
  center(query: number, key: number, scale?: number): void;
  camera(): { x: number; y: number; scale: number } | null;
  settled(): boolean;
  /** The value a cell is coloured from: 0 where forbidden, null where its exact tile is not at hand. */
  value(query: number, key: number): number | null;
  /** Screen position of the middle of a cell, relative to the window. */
  place(query: number, key: number): { x: number; y: number } | null;
  tilesFetched(): number;
}

export function offerHooks(model: MapModel): () => void {
  const first = () => [...model.stages][0];
  const hooks: MapHooks = {
    center: (query, key, scale) => model.center(query, key, scale, true),
    camera: () => first()?.camera ?? null,
    settled: () => [...model.stages].every((stage) => stage.settled),
    value(query, key) {
      // Tiles of nothing but forbidden cells are never fetched.
      if (!isAllowed(model.mask(mapRef(model.state)), query, key)) return 0;
      const [row, col] = [Math.floor(query / TILE), Math.floor(key / TILE)];
      const grid = model.store.peek(mapRef(model.state), { level: 0, row, col, how: "mean" });
      return grid?.values[(query - row * TILE) * grid.cols + (key - col * TILE)] ?? null;
    },
    place(query, key) {
      return first()?.place(query + 0.5, key + 0.5) ?? null;
    },
    tilesFetched: () => model.store.fetched,
  };
  window.regard = { ...window.regard, map: hooks };
  return () => {
    if (window.regard?.map === hooks) delete window.regard.map;
  };
}
