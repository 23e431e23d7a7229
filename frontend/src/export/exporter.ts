import { type Signal, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { Source } from "../source/source";
import type { ViewState } from "../state";

export interface Picture {
  width: number;
  height: number;
  /** A whole SVG document. */
  svg: string;
}

/** How one view is exported, in what differs from what any view can do. */
export interface Exporter {
  /** Else the view is pictured as it stands in the page. */
  picture?(): Picture | Promise<Picture>;
  /** Let everything appear that a picture of the page should show. */
  ready?(): Promise<void>;
  /** Ask `source` for everything the exported page should be able to answer, beside what the view has asked already. */
  gather?(source: Source): Promise<void>;
}

const current = new WeakMap<ViewState, Signal<Exporter | null>>();

export function exporterOf(state: ViewState): Signal<Exporter | null> {
  let slot = current.get(state);
  if (!slot) {
    slot = signal<Exporter | null>(null);
    current.set(state, slot);
  }
  return slot;
}

/** Offer an exporter for as long as the view is shown. */
export function useExporter(state: ViewState, exporter: Exporter): void {
  useEffect(() => {
    const slot = exporterOf(state);
    slot.value = exporter;
    return () => {
      if (slot.peek() === exporter) slot.value = null;
    };
  });
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text for XML: also without the control characters that XML refuses. */
export function xml(text: string): string {
  return (
    text
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what XML refuses
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "")
      .replace(/[&<>"']/g, (letter) => ENTITIES[letter]!)
  );
}
