import type { Exporter } from "../../export/exporter";
import type { MapRef, Source } from "../../source/source";
import { mapRef } from "../../state";
import { gatherTiles, tilesToKeep } from "./gather";
import type { MapModel } from "./model";
import { numbersOn } from "./numbers";
import { readInks } from "./paper";
import { mapPicture, type PanePicture } from "./picture";

/** How the map view becomes a file. */
export function mapExporter(model: MapModel, host: () => HTMLElement | null): Exporter {
  return {
    picture() {
      const element = host();
      if (!element) throw new Error("The map is not on screen.");
      const { recording } = model.open;
      const panes = mapsOf(model).map((map, i) => panePicture(model, map, i));
      return mapPicture(`${recording.name} (${recording.model})`, panes, model.colours.peek(), readInks(element));
    },
    gather: (source) => gather(model, source),
  };
}

function mapsOf(model: MapModel): MapRef[] {
  const beside = model.beside.peek();
  return beside ? [mapRef(model.state), beside] : [mapRef(model.state)];
}

function panePicture(model: MapModel, map: MapRef, index: number): PanePicture {
  const stage = [...model.stages][index];
  const canvas = stage?.canvas();
  if (!stage || !canvas) throw new Error("The map is not drawn yet.");
  const { camera, size } = stage;
  const { stack, tokens } = model.open;
  const mask = model.mask(map);
  const pinned = model.pinned.peek();
  const axis = { camera, size, spot: pinned };
  return {
    title: `layer ${map.layer}, head ${map.head}`,
    cells: canvas.toDataURL("image/png"),
    size,
    camera,
    mask,
    overlay: {
      camera,
      size,
      mask,
      documents: stack.documents,
      overlays: model.overlays.peek(),
      hover: null,
      pinned,
      box: model.box.peek(),
      marks: model.marks(map),
    },
    numbers: numbersOn(camera, size, mask, model.colours.peek(), (query, key) => model.exactValue(map, query, key)),
    top: { ...axis, side: "top", count: stack.keys, tokens, sections: model.sections, thumbs: model.thumbs.peek() },
    left: {
      ...axis,
      side: "left",
      count: stack.queries,
      tokens: model.open.queryTokens,
      sections: model.querySections,
      thumbs: model.queryThumbs,
    },
  };
}

async function gather(model: MapModel, source: Source): Promise<void> {
  const camera = model.camera.peek();
  const stage = [...model.stages][0];
  if (!camera || !stage) throw new Error("The map is not drawn yet.");
  const pinned = model.pinned.peek();
  const box = model.box.peek();
  for (const map of mapsOf(model)) {
    await gatherTiles(source, map, tilesToKeep(model.mask(map), camera, stage.size, model.state.how.peek()));
    if (pinned) await source.cell(map, pinned.query, pinned.key);
    if (model.thumbs.peek()) await source.pictures(map.rec, map.role);
    if (box) await source.region(map, box);
    if (model.kind.peek()) await source.evidence(map, model.kind.peek());
  }
}
