import { useState } from "preact/hooks";

import { sentence } from "../../parts/answer";
import type { TokenTable } from "../../parts/tokens";
import { mapRef } from "../../state";
import type { MapModel } from "./model";
import type { Spot } from "./overlay";

/** A row of a map for a spreadsheet: every key, its token and its weight, at full precision. */
export function csvOf(weights: ArrayLike<number>, tokens: Pick<TokenTable, "raw">): string {
  const quoted = (text: string): string => `"${text.replaceAll('"', '""')}"`;
  const lines = Array.from(weights, (weight, key) => `${key},${quoted(tokens.raw(key))},${weight}`);
  return ["key,token,weight", ...lines].join("\r\n");
}

/** The number at the cross-hair, or its whole row, for somewhere else. */
export function Copies({ model, spot }: { model: MapModel; spot: Spot }) {
  const [said, say] = useState("");
  const map = mapRef(model.state);
  const copy = async (what: string, text: () => Promise<string>): Promise<void> => {
    try {
      await navigator.clipboard.writeText(await text());
      say(`${what} is on the clipboard.`);
    } catch (error) {
      say(`${what} could not be copied: ${sentence(error)}`);
    }
  };
  const value = async (): Promise<string> => String((await model.source.cell(map, spot.query, spot.key)).weight);
  const row = async (): Promise<string> =>
    csvOf(await model.source.weights(map, { query: spot.query }), model.open.tokens);
  return (
    <div class="copies">
      <button type="button" data-testid="copy-value" onClick={() => void copy("The weight", value)}>
        Copy weight
      </button>
      {model.source.offersWeights(map, { query: spot.query }) && (
        <button type="button" data-testid="copy-row" onClick={() => void copy("The row", row)}>
          Copy row (CSV)
        </button>
      )}
      <span class="small soft" role="status">
        {said}
      </span>
    </div>
  );
}
