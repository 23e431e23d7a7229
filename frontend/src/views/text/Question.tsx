import { Segmented } from "../../parts/segmented";
import type { Direction, Heads, TextModel } from "./model";

/** The direction and the heads that are asked about. An exported page holds those that were on screen. */
export function Question({ model }: { model: TextModel }) {
  if (model.source.kind === "static") return null;
  return (
    <>
      <Segmented<Direction>
        name="Direction"
        value={model.direction.value as Direction}
        values={[
          ["keys", "what it looks at"],
          ["queries", "what looks at it"],
        ]}
        onChange={(value) => model.turn(value)}
      />
      <Segmented<Heads>
        name="Heads"
        value={model.heads.value as Heads}
        values={[
          ["one", "this head"],
          ["mean", "layer mean"],
          ["max", "layer max"],
        ]}
        onChange={(value) => (model.heads.value = value)}
      />
    </>
  );
}
