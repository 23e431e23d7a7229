import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { type Open, OpenProvider, openStack } from "../context";
import { sentence } from "../parts/answer";
import { Failure } from "../parts/failure";
import { formatCount } from "../parts/format";
import { HeadPicker } from "../parts/heads";
import type { Source } from "../source/source";
import { StateProvider, type ViewState } from "../state";
import { MapView } from "../views/map/MapView";
import { TextView } from "../views/text/TextView";

export type Shown = "map" | "text";

const VIEWS: Record<Shown, { name: string; component: ComponentType<{ source: Source }> }> = {
  map: { name: "Map", component: MapView },
  text: { name: "Text", component: TextView },
};

interface FrameProps {
  source: Source;
  state: ViewState;
  views: readonly Shown[];
  /** Called when the kernel has answered: from then on there is something to see. */
  onAlive(): void;
}

/** The page's Map and Text in a cell of a notebook: one recording, no address, no menus. */
export function Frame({ source, state, views, onAlive }: FrameProps) {
  const { open, failure, retry } = useOpened(source, state);
  const alive = open !== null;
  useEffect(() => {
    if (alive) onAlive();
  }, [alive]);
  const view = views.find((name) => name === state.view.value) ?? "map";
  const Active = VIEWS[view].component;
  return (
    <StateProvider value={state}>
      <div class="frame">
        <div class="frame-bar" role="group" aria-label="What is shown">
          {views.length > 1 && (
            <span class="segmented" role="group" aria-label="View">
              {views.map((name) => (
                <button
                  key={name}
                  type="button"
                  aria-pressed={name === view}
                  data-testid={`tab-${name}`}
                  onClick={() => (state.view.value = name)}
                >
                  {VIEWS[name].name}
                </button>
              ))}
            </span>
          )}
          {open && <Where open={open} state={state} />}
          {open && <span class="app-note">{formatCount(open.recording.tokens)} tokens</span>}
        </div>
        <div class={`view view-${view}`} data-testid={`view-${view}`}>
          {failure && <Failure text={failure} onRetry={retry} />}
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
  const [open, setOpen] = useState<Open | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [attempt, setAttempt] = useState(0);
  const role = state.role.value;
  useEffect(() => {
    let current = true;
    const load = async (): Promise<void> => {
      const { default: rec } = await source.recordings();
      if (rec === null) throw new Error("The recording has gone. Show it again.");
      const opened = await openStack(source, await source.recording(rec), role);
      if (!current) return;
      state.rec.value = rec;
      setOpen(opened);
      setFailure(null);
    };
    load().catch((error: unknown) => {
      if (current) setFailure(sentence(error));
    });
    return () => {
      current = false;
    };
  }, [source, state, role, attempt]);
  const here = open !== null && (role === "" || open.stack.role === role);
  return { open: here ? open : null, failure, retry: () => setAttempt(attempt + 1) };
}

function Where({ open, state }: { open: Open; state: ViewState }) {
  const { recording, stack } = open;
  const turn = (role: string): void => {
    const next = recording.stacks.find((one) => one.role === role);
    if (next)
      state.go({ role, layer: next.layers[0] ?? 0, head: 0, x: null, y: null, z: null, query: null, key: null });
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
      <HeadPicker
        stack={stack}
        layer={state.layer.value}
        head={state.head.value}
        onChange={({ layer, head }) => state.go({ layer, head })}
      />
    </>
  );
}
