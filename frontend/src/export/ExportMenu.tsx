import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { type Open, openStack } from "../context";
import { closeOutside } from "../parts/menu";
import { MemoryTransport } from "../source/memory";
import { PathSource, type Transport } from "../source/paths";
import type { View, ViewState } from "../state";
import { tries } from "../views/matter/tries";
import { CollectingTransport, emptyArchive, pack } from "./archive";
import { exporterOf, type Picture } from "./exporter";
import { download, htmlFile, pngFile, svgFile } from "./files";
import { snapshot } from "./snapshot";

type Kind = "png" | "svg" | "html";

const KINDS: [Kind, string, string][] = [
  ["png", "Picture (PNG)", "for slides and messages"],
  ["svg", "Drawing (SVG)", "for print; text stays text"],
  ["html", "Page (HTML)", "one file that works from disk, without a server"],
];

/** The present view as a file, or as a link. */
export function ExportMenu({ transport, state, open }: { transport: Transport; state: ViewState; open: Open | null }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const busy = useSignal<Kind | null>(null);
  const said = useSignal("");
  useEffect(() => closeOutside(menu), []);
  if (!open) return null;

  const run = async (kind: Kind): Promise<void> => {
    busy.value = kind;
    said.value = "";
    try {
      const name = fileName(state, open);
      const blob =
        kind === "html"
          ? await wholePage(transport, state, open)
          : await (kind === "png" ? pngFile : svgFile)(await pictureOf(state));
      download(blob, `${name}.${kind}`);
      said.value = `${name}.${kind}`;
      if (menu.current) menu.current.open = false;
    } catch (error) {
      said.value = error instanceof Error ? error.message : String(error);
    } finally {
      busy.value = null;
    }
  };
  const copy = async (): Promise<void> => {
    const link = linkOf(location.href);
    try {
      await navigator.clipboard.writeText(link);
      said.value = "The link is on the clipboard.";
    } catch {
      said.value = link; // no clipboard: the link can be marked and copied by hand
    }
  };
  return (
    <details class="menu" ref={menu} data-testid="export">
      <summary aria-label="Export this view">Export</summary>
      <div class="menu-sheet" role="group" aria-label="Export this view as">
        {kindsOf(transport, state.view.value).map(([kind, label, hint]) => (
          <button
            key={kind}
            type="button"
            disabled={busy.value !== null}
            data-testid={`export-${kind}`}
            onClick={() => void run(kind)}
          >
            <b>{busy.value === kind ? "Working…" : label}</b>
            <span>{hint}</span>
          </button>
        ))}
        {transport.kind !== "static" && (
          <button type="button" onClick={() => void copy()}>
            <b>Copy link</b>
            <span>brings you back to exactly this</span>
          </button>
        )}
        <p class="small soft" role="status" data-testid="export-said">
          {said.value}
        </p>
      </div>
    </details>
  );
}

/** A page can be made of what looks at a recording, by a server; “Try it” and “Check” need one to do anything. */
function kindsOf(transport: Transport, view: View): typeof KINDS {
  const page = transport.kind !== "static" && view !== "try" && view !== "check";
  return page ? KINDS : KINDS.filter(([kind]) => kind !== "html");
}

/** The address without the token: who may look is not for a link to say. */
export function linkOf(address: string): string {
  const link = new URL(address);
  link.searchParams.delete("token");
  return link.href;
}

function fileName(state: ViewState, open: Open): string {
  const head = ["map", "text", "picture", "steps"].includes(state.view.value)
    ? `-layer${state.layer.value}-head${state.head.value}`
    : "";
  return `${open.recording.name}-${state.view.value}${head}`.replace(/[^\p{L}\p{N}._-]+/gu, "-");
}

async function pictureOf(state: ViewState): Promise<Picture> {
  const exporter = exporterOf(state).value;
  if (exporter?.picture) return exporter.picture();
  await exporter?.ready?.();
  const view = document.getElementById("view");
  if (!view) throw new Error("There is no view to picture.");
  return snapshot(view);
}

async function wholePage(transport: Transport, state: ViewState, open: Open): Promise<Blob> {
  const view = state.view.value;
  const archive = emptyArchive(state.hash(), [view]);
  const source = new PathSource(new CollectingTransport(transport, archive));
  const { id, name, model, tokens, stacks } = open.recording;
  await openStack(source, await source.recording(id), open.stack.role);
  const other = view === "compare" ? state.param("with").peek() : "";
  const known = [{ id, name, model, tokens, stacks: stacks.map((stack) => stack.role) }];
  if (other !== "" && other !== id) {
    const beside = await source.recording(other);
    await openStack(source, beside, open.stack.role);
    known.push({ ...beside, stacks: beside.stacks.map((stack) => stack.role) });
  }
  archive.json["/api/recordings"] = { recordings: known, default: id };
  archive.json["/api/info"] = { version: "", models: [], can_run_models: false };
  const exporter = exporterOf(state).value;
  await exporter?.gather?.(source);
  // The map and the text ask for far more than they show; what they need they gather.
  if (!exporter?.picture && transport instanceof MemoryTransport)
    await remember(transport, archive, other === "" ? [id] : [id, other]);
  if (view === "matter") archive.tries = tries.value.filter((one) => one.rec === id);
  return htmlFile(archive, `${name}: ${view}`);
}

/** A view that is pictured as it stands takes along all it has asked for about its recording. */
async function remember(
  memory: MemoryTransport,
  archive: ReturnType<typeof emptyArchive>,
  recs: readonly string[],
): Promise<void> {
  const about = (path: string): boolean =>
    recs.some((rec) => path.includes(encodeURIComponent(rec))) || path.startsWith("/api/worked");
  for (const [path, answer] of memory.answers) if (about(path)) archive.json[path] ??= answer;
  for (const [path, grid] of memory.grids) {
    if (about(path) && !path.includes("/tile?")) archive.grids[path] ??= await pack(grid);
  }
}
