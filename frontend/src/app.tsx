import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { type Open, OpenProvider } from "./context";
import { ExportMenu } from "./export/ExportMenu";
import { HeadPicker } from "./parts/heads";
import { ThemeSwitch } from "./parts/theme";
import { TokenTable } from "./parts/tokens";
import { formatCount } from "./parts/format";
import type { PathSource } from "./source/paths";
import type { RecordingEntry, Source } from "./source/source";
import { StateProvider, type View, VIEWS, type ViewState } from "./state";
import { AtlasView } from "./views/atlas/AtlasView";
import { MapView } from "./views/map/MapView";
import { MatterView } from "./views/matter/MatterView";
import { StepsView } from "./views/steps/StepsView";
import { TextView } from "./views/text/TextView";
import { TryView } from "./views/try/TryView";

const TABS: Record<View, { name: string; hint: string; component: ComponentType<{ source: Source }> }> = {
  map: { name: "Map", hint: "Every query against every key", component: MapView },
  text: { name: "Text", hint: "The document, lit up by weight", component: TextView },
  atlas: { name: "Atlas", hint: "All heads and what they do", component: AtlasView },
  steps: { name: "Steps", hint: "One query, one step at a time", component: StepsView },
  matter: { name: "Does it matter?", hint: "Block it and see what changes", component: MatterView },
  try: { name: "Try it", hint: "Your own text", component: TryView },
};

/** Views that look at one head, so that the head is chosen in the bar above them. */
const PER_HEAD: readonly View[] = ["map", "text", "steps", "matter"];

/** `views`: those offered; an exported page has but one. */
export function App({ source, state, views = VIEWS }: { source: PathSource; state: ViewState; views?: readonly View[] }) {
  return (
    <StateProvider value={state}>
      <Shell source={source} state={state} views={views} />
    </StateProvider>
  );
}

function Shell({ source, state, views }: { source: PathSource; state: ViewState; views: readonly View[] }) {
  const { entries, open, failure, retry } = useRecording(source, state);
  const view = state.view.value;
  const Active = TABS[view].component;
  const tryable = view === "try"; // needs no recording: it makes one
  return (
    <div class="shell">
      <header class="app-bar">
        <a class="app-brand" href="#/map" aria-label="regard: the map">
          <Mark /> regard
        </a>
        <Tabs state={state} views={views} />
        <div class="app-bar-end">
          <ExportMenu transport={source.transport} state={state} open={open} />
          <ThemeSwitch />
        </div>
      </header>
      <div class="app-tools" role="group" aria-label="What is shown">
        <RecordingPicker entries={entries} state={state} />
        {open && PER_HEAD.includes(view) && <Where open={open} state={state} />}
        {open && <span class="app-note">{formatCount(open.recording.tokens)} tokens · {open.recording.model}</span>}
      </div>
      <main id="view" class={`view view-${view}`} role="tabpanel" aria-labelledby={`tab-${view}`} data-testid={`view-${view}`}>
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
            <Active key={`${view} ${open.recording.id}`} source={source} />
          </OpenProvider>
        ) : tryable ? (
          <Active source={source} />
        ) : (
          !failure && <p class="notice" role="status">Opening the recording…</p>
        )}
      </main>
    </div>
  );
}

interface Loaded {
  entries: RecordingEntry[];
  open: Open | null;
  failure: string | null;
  retry(): void;
}

/** Follows the recording named in the address; what cannot be opened is said and the page stays usable. */
function useRecording(source: Source, state: ViewState): Loaded {
  const [entries, setEntries] = useState<RecordingEntry[]>([]);
  const [loaded, setLoaded] = useState<{ recording: Open["recording"]; tokens: TokenTable } | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [attempt, setAttempt] = useState(0);
  const rec = state.rec.value;

  useEffect(() => {
    let current = true;
    const load = async (): Promise<void> => {
      const list = await source.recordings();
      if (!current) return;
      setEntries(list.recordings);
      const wanted = rec || list.default || list.recordings[0]?.id;
      if (!wanted) throw new Error("There is no recording here yet. “Try it” makes one from your own text.");
      if (!rec) {
        state.rec.value = wanted;
        return;
      }
      const [recording, tokens] = await Promise.all([source.recording(rec), source.tokens(rec)]);
      if (!current) return;
      settle(state, recording);
      setLoaded({ recording, tokens: new TokenTable(tokens) });
      setFailure(null);
    };
    load().catch((error: unknown) => {
      if (!current) return;
      setLoaded(null);
      setFailure(error instanceof Error ? error.message : String(error));
    });
    return () => {
      current = false;
    };
  }, [source, state, rec, attempt]);

  const stack = loaded && (loaded.recording.stacks.find((s) => s.role === state.role.value) ?? loaded.recording.stacks[0]);
  return {
    entries,
    open: loaded && stack && loaded.recording.id === rec ? { ...loaded, stack } : null,
    failure,
    retry: () => setAttempt(attempt + 1),
  };
}

/** Replace what the address leaves out, or asks for in vain, by what the recording has. */
function settle(state: ViewState, recording: Open["recording"]): void {
  const stack = recording.stacks.find((s) => s.role === state.role.peek()) ?? recording.stacks[0];
  if (!stack) return;
  state.go({
    role: stack.role,
    layer: stack.layers.includes(state.layer.peek()) ? state.layer.peek() : worthSeeing(stack.layers),
    head: Math.min(state.head.peek(), stack.heads - 1),
  });
}

/** The first layers mostly look at neighbours; two thirds up, heads have found something to do. */
function worthSeeing(layers: readonly number[]): number {
  return layers[Math.floor((layers.length * 2) / 3)] ?? layers[0] ?? 0;
}

function Tabs({ state, views }: { state: ViewState; views: readonly View[] }) {
  const move = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    const next = views[(views.indexOf(state.view.value) + by + views.length) % views.length]!;
    state.view.value = next;
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <nav class="app-tabs" role="tablist" aria-label="Views" onKeyDown={move}>
      {views.map((view) => (
        <button
          key={view}
          id={`tab-${view}`}
          type="button"
          role="tab"
          aria-selected={state.view.value === view}
          aria-controls="view"
          tabIndex={state.view.value === view ? 0 : -1}
          title={TABS[view].hint}
          data-testid={`tab-${view}`}
          onClick={() => (state.view.value = view)}
        >
          {TABS[view].name}
        </button>
      ))}
    </nav>
  );
}

function RecordingPicker({ entries, state }: { entries: RecordingEntry[]; state: ViewState }) {
  if (entries.length === 0) return null;
  const choose = (rec: string): void =>
    state.go({ rec, role: "", x: null, y: null, z: null, query: null, key: null });
  return (
    <label class="picker">
      <span class="picker-name">Recording</span>
      <select
        aria-label="Recording"
        data-testid="pick-recording"
        value={state.rec.value}
        onChange={(event) => choose(event.currentTarget.value)}
      >
        {entries.map((entry) => (
          <option key={entry.id} value={entry.id}>
            {entry.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Where({ open, state }: { open: Open; state: ViewState }) {
  const { recording, stack } = open;
  return (
    <>
      {recording.stacks.length > 1 && (
        <label class="picker">
          <span class="picker-name">Stack</span>
          <select
            aria-label="Stack"
            value={stack.role}
            onChange={(event) => {
              const role = event.currentTarget.value;
              const next = recording.stacks.find((s) => s.role === role);
              if (next) state.go({ role, layer: next.layers[0] ?? 0, head: 0, x: null, y: null, z: null, query: null, key: null });
            }}
          >
            {recording.stacks.map((s) => (
              <option key={s.role} value={s.role}>
                {s.role}
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

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
      <path d="M1 1v14h14z" fill="var(--brand-deep)" />
      <path d="M1 5l10 10h3L1 2z" fill="var(--brand-bright)" />
    </svg>
  );
}
