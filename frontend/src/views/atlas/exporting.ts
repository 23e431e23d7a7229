import type { Exporter } from "../../export/exporter";
import type { Recording } from "../../source/source";
import type { ViewState } from "../../state";
import { askAll } from "../map/gather";
import type { Card } from "./cards";
import { SIZE } from "./Thumb";

const CURVES = 128;
const SHORT = 2048;

/** How the atlas becomes a file: with the pictures of all heads, those below the edge of the screen too. */
export function atlasExporter(
  recording: Recording,
  cards: readonly Card[],
  state: ViewState,
  showAll: () => void,
): Exporter {
  return {
    async ready() {
      showAll();
      const waiting = (): boolean => document.querySelector(".thumb[data-state=waiting]") !== null;
      do await new Promise((later) => setTimeout(later, 50));
      while (waiting());
    },
    async gather(source) {
      const how = state.how.peek();
      await askAll(cards, ({ role, layer, head }) => source.thumb({ rec: recording.id, role, layer, head }, SIZE, how));
      // The curves of every head, where that takes seconds; else those of the heads that were looked at.
      if (cards.length <= CURVES && recording.tokens <= SHORT)
        await askAll(cards, ({ role, layer, head }) => source.statistics({ rec: recording.id, role, layer, head }));
    },
  };
}
