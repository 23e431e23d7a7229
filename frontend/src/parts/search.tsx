import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";

import { formatCount, formatNouns } from "./format";
import type { TokenTable } from "./tokens";

/** Find a token by its text or position: Enter goes from place to place. */
export function TokenSearch({
  tokens,
  onGo,
  children,
}: {
  tokens: TokenTable;
  onGo(i: number): void;
  children?: ComponentChildren;
}) {
  const wanted = useSignal("");
  const turn = useSignal(-1);
  const text = wanted.value.trim();
  const found = useMemo(() => (text === "" ? [] : tokens.find(text, 0, 999)), [tokens, text]);
  useEffect(() => {
    turn.value = -1;
  }, [tokens]);
  const go = (by: number): void => {
    if (found.length === 0) return;
    turn.value = (Math.max(turn.value, by < 0 ? 0 : -1) + by + found.length) % found.length;
    onGo(found[turn.value]!);
  };
  return (
    <>
      <form
        class="search"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          go(1);
        }}
      >
        <input
          type="search"
          placeholder="Word or position"
          aria-label="Word or position to go to"
          data-testid="jump"
          value={wanted.value}
          onInput={(event) => {
            wanted.value = event.currentTarget.value;
            turn.value = -1;
          }}
        />
        {children}
      </form>
      {text !== "" && (
        <p class="small soft search-found" role="status">
          {found.length === 0 ? (
            "Not in this text."
          ) : (
            <>
              <button type="button" aria-label="Previous place" onClick={() => go(-1)}>
                ‹
              </button>
              {turn.value >= 0 ? `${formatCount(turn.value + 1)} of ` : ""}
              {formatNouns(found.length, "place")}
              <button type="button" aria-label="Next place" onClick={() => go(1)}>
                ›
              </button>
            </>
          )}
        </p>
      )}
    </>
  );
}
