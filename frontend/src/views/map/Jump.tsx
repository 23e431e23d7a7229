import { useSignal } from "@preact/signals";

import { TokenSearch } from "../../parts/search";
import type { MapModel } from "./model";

/** Bring a token to the middle of the map, as query or as key. */
export function Jump({ model }: { model: MapModel }) {
  const side = useSignal<"query" | "key">("query");
  const tokens = side.value === "query" ? model.open.queryTokens : model.open.tokens;
  return (
    <section class="card" aria-label="Go to a token">
      <TokenSearch tokens={tokens} onGo={(i) => jumpTo(model, side.value, i)}>
        <span class="segmented" role="group" aria-label="Go to it as">
          {(["query", "key"] as const).map((name) => (
            <button key={name} type="button" aria-pressed={side.value === name} onClick={() => (side.value = name)}>
              {name}
            </button>
          ))}
        </span>
      </TokenSearch>
    </section>
  );
}

/** The other end stays where it was if the pair may attend, else it goes to the diagonal. */
function jumpTo(model: MapModel, side: "query" | "key", at: number): void {
  const { apart, shift } = model.open;
  const { queries, keys } = model.open.stack;
  const old = model.pinned.peek();
  const clamp = (value: number, count: number): number => Math.min(count - 1, Math.max(0, value));
  const query = clamp(side === "query" ? at : Math.max(old?.query ?? 0, apart ? 0 : at - shift), queries);
  const key = clamp(side === "key" ? at : Math.min(old?.key ?? (apart ? 0 : keys), apart ? keys : at + shift), keys);
  model.pick({ query, key });
  model.center(query, key);
}
