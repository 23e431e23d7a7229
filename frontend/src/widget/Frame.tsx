import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { type Open, OpenProvider } from "../context";
import { formatCount } from "../parts/format";
import { HeadPicker } from "../parts/heads";
import { TokenTable } from "../parts/tokens";
import type { Source } from "../source/source";
import { StateProvider, type ViewState } from "../state";
import { MapView } from "../views/map/MapView";
import { TextView } from "../views/text/TextView";

export type Shown = "map" | "text";

const VIEWS: Record<Shown, { name: string; component: ComponentType<{ source: Source }> }> = {
  map: { name: "Map", component: MapView },
  text: { name: "Text", component: TextView },
};

/** The page's Map and Text in a cell of a notebook: one recording, no address, no menus. */
export function Frame({ source, state, views }: { source: Source; state: ViewState; views: readonly Shown[] }) {
  const { open, failure, retry } = useOpened(source, state);
  const view = views.find((name) => name === state.view.value) ?? "map";
  const Active = VIEWS[view].component;
  return (
    <StateProvider value={state}>
      <div class="frame">
        <div class="frame-bar" role="group" aria-label="What is shown">
          {views.length > 1 && (
            <span class="segmented" role="group" aria-label="View">
              {views.map((name) => (
                <button key={name} type="button" aria-pressed={name === view} data-testid={`tab-${name}`} onClick={() => (state.view.value = name)}>
                  {VIEWS[name].name}
                </button>
              ))}
            </span>
          )}
          {open && <Where open={open} state={state} />}
          {open && <span class="app-note">{formatCount(open.recording.tokens)} tokens</span>}
        </div>
        <div class={`view view-${view}`} data-testid={`view-${view}`}>
          {failure && (
            <div class="notice failure" role="alert" data-testid="failure">
              <p>{failure}</p>
              <button type="button" onClick={retry}>
                Try again
              </button>
            </div>
          )}
          {open ? (
            <OpenProvider value={open}>
              <Active key={`${view} ${open.stack.role}`} source={source} />
            </OpenProvider>
          ) : (
            !failure && (
              <p class="notice" role="status">
                Waiting for the kernel…
              </p>
            )
          )}
        </div>
      </div>
    </StateProvider>
  );
}

function useOpened(source: Source, state: ViewState): { open: Open | null; failure: string | null; retry(): void } {
  const [loaded, setLoaded] = useState<Pick<Open, "recording" | "tokens"> | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    let current = true;
    const load = async (): Promise<void> => {
      const { default: rec } = await source.recordings();
      if (rec === null) throw new Error("The recording has gone. Show it again.");
      const [recording, tokens] = await Promise.all([source.recording(rec), source.tokens(rec)]);
      if (!current) return;
      state.rec.value = rec;
      setLoaded({ recording, tokens: new TokenTable(tokens) });
      setFailure(null);
    };
    load().catch((error: unknown) => {
      if (current) setFailure(error instanceof Error ? error.message : String(error));
    });
    return () => {
      current = false;
    };
  }, [source, state, attempt]);
  const stack = loaded?.recording.stacks.find((one) => one.role === state.role.value) ?? loaded?.recording.stacks[0];
  return { open: loaded && stack ? { ...loaded, stack } : null, failure, retry: () => setAttempt(attempt + 1) };
}

function Where({ open, state }: { open: Open; state: ViewState }) {
  const { recording, stack } = open;
  const turn = (role: string): void => {
    const next = recording.stacks.find((one) => one.role === role);
    if (next) state.go({ role, layer: next.layers[0] ?? 0, head: 0, x: null, y: null, z: null, query: null, key: null });
  };
  return (
    <>
      {recording.stacks.length > 1 && (
        <label class="picker">
          <span class="picker-name">Stack</span>
          <select aria-label="Stack" value={stack.role} onChange={(event) => turn(event.currentTarget.value)}>
            {recording.stacks.map(({ role }) => (
              <option key={role} value={role}>
                {role}
              </option>
            ))}
          </select>
        </label>
      )}
      <HeadPicker stack={stack} layer={state.layer.value} head={state.head.value} onChange={({ layer, head }) => state.go({ layer, head })} />
    </>
  );
}
