import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { type Open, OpenProvider, openStack } from "./context";
import { ExportMenu } from "./export/ExportMenu";
import { sentence } from "./parts/answer";
import { Failure } from "./parts/failure";
import { formatNouns } from "./parts/format";
import { HeadPicker } from "./parts/heads";
import { Help, Tour } from "./parts/help";
import { Questions } from "./parts/questions";
import { Recordings } from "./parts/recordings";
import { ThemeSwitch } from "./parts/theme";
import { Work } from "./parts/work";
import type { PathSource } from "./source/paths";
import type { RecordingEntry, Source } from "./source/source";
import { StateProvider, VIEWS, type View, type ViewState } from "./state";
import { AtlasView } from "./views/atlas/AtlasView";
import { CheckView } from "./views/check/CheckView";
import { CompareView } from "./views/compare/CompareView";
import { MapView } from "./views/map/MapView";
import { MatterView } from "./views/matter/MatterView";
import { PictureView } from "./views/picture/PictureView";
import { StepsView } from "./views/steps/StepsView";
import { TextView } from "./views/text/TextView";
import { TokenView } from "./views/token/TokenView";
import { TryView } from "./views/try/TryView";
import { BOOK, beginBook } from "./views/try/work";

const TABS: Record<View, { name: string; hint: string; component: ComponentType<{ source: Source }> }> = {
  map: { name: "Map", hint: "Every query against every key", component: MapView },
  text: { name: "Text", hint: "The document, lit up by weight", component: TextView },
  picture: { name: "Picture", hint: "Weights laid over what was seen or heard", component: PictureView },
  token: { name: "One token", hint: "One word in every head", component: TokenView },
  atlas: { name: "Atlas", hint: "All heads and what they do", component: AtlasView },
  compare: { name: "Compare", hint: "Two texts, or two models, beside each other", component: CompareView },
  steps: { name: "Steps", hint: "One query, one step at a time", component: StepsView },
  matter: { name: "Does it matter?", hint: "Block it and see what changes", component: MatterView },
  try: { name: "Try it", hint: "Your own text", component: TryView },
  check: { name: "Check", hint: "Is this tutorial right?", component: CheckView },
};

/** Views that look at one head, so that the head is chosen in the bar above them. */
const PER_HEAD: readonly View[] = ["map", "text", "picture", "steps", "matter"];

/** `views`: those offered; an exported page has but one. */
export function App({
  source,
  state,
  views = VIEWS,
}: {
  source: PathSource;
  state: ViewState;
  views?: readonly View[];
}) {
  return (
    <StateProvider value={state}>
      <Shell source={source} state={state} views={views} />
    </StateProvider>
  );
}

function Shell({ source, state, views }: { source: PathSource; state: ViewState; views: readonly View[] }) {
  const { entries, open, failure, retry } = useRecording(source, state);
  const view = state.view.value;
  // Whatever failed while the server was away is asked again.
  const [revived, setRevived] = useState(0);
  const revive = (): void => {
    setRevived(revived + 1);
    retry();
  };
  const readBook = (): void => {
    state.view.value = "try"; // which shows how far it is
    void beginBook(source, state);
  };
  // Most recordings are of a text alone, and have no picture.
  const offered = views.filter(
    (one) => one !== "picture" || view === one || (open?.recording.pictures.length ?? 0) > 0,
  );
  const Active = TABS[view].component;
  return (
    <div class="shell">
      <header class="app-bar">
        <a class="app-brand" href="#/map" aria-label="regard: the map">
          <Mark /> regard
        </a>
        <Tabs state={state} views={offered} />
        <div class="app-bar-end">
          {source.kind === "http" && <Work source={source} onBack={revive} />}
          <ExportMenu transport={source.transport} state={state} open={open} />
          {views.length > 1 && <Help />}
          <ThemeSwitch />
        </div>
      </header>
      <div class="app-tools" role="group" aria-label="What is shown">
        {source.kind === "static" ? (
          open && <Exported open={open} state={state} view={view} />
        ) : (
          <>
            <RecordingPicker entries={entries} state={state} />
            {source.kind === "http" && <Recordings source={source} open={open} onShow={(rec) => show(state, rec)} />}
          </>
        )}
        {source.kind !== "static" && open && PER_HEAD.includes(view) && <Where open={open} state={state} />}
        {open && (
          <span class="app-note">
            {formatNouns(open.recording.tokens, "token")} · {open.recording.model}
          </span>
        )}
        {open && !open.recording.complete && (
          <span class="app-unfinished" data-testid="unfinished" title="What was recorded until then can be looked at">
            ⚠ unfinished: its run ended after {layersOf(open)}
          </span>
        )}
        {source.kind !== "static" && open && asksOfText(open) && (
          <Questions source={source} open={open} onBook={offersBook(entries, open) ? readBook : null} />
        )}
        {views.length > 1 && open && <Tour />}
      </div>
      <main
        id="view"
        class={`view view-${view}`}
        role="tabpanel"
        aria-labelledby={`tab-${view}`}
        data-testid={`view-${view}`}
      >
        {failure && <Failure text={failure} onRetry={retry} />}
        {view === "try" ? (
          // Needs no recording, and makes one: what is being typed is left alone when another opens meanwhile.
          <TryView source={source} />
        ) : view === "check" ? (
          <CheckView source={source} />
        ) : open ? (
          <OpenProvider value={open}>
            <Active key={`${view} ${open.recording.id} ${open.stack.role} ${revived}`} source={source} />
          </OpenProvider>
        ) : (
          !failure && (
            <p class="notice" role="status">
              Opening the recording…
            </p>
          )
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

/** Follows the recording and stack named in the address; what cannot be opened is said and the page stays usable. */
function useRecording(source: Source, state: ViewState): Loaded {
  const [entries, setEntries] = useState<RecordingEntry[]>([]);
  const [open, setOpen] = useState<Open | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [attempt, setAttempt] = useState(0);
  const rec = state.rec.value;
  const role = state.role.value;
  const opened = useRef<Open | null>(null);

  useEffect(() => {
    let current = true;
    // An address may leave the stack out; then the one that is open will do.
    if (opened.current?.recording.id === rec && ["", opened.current.stack.role].includes(role)) return;
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
      const damaged = list.recordings.find(({ id, error }) => id === rec && error);
      if (damaged) throw new Error(`${damaged.name} cannot be opened: ${damaged.error}`);
      const found = await openStack(source, await source.recording(rec), role);
      if (!current) return;
      opened.current = found;
      state.role.value = found.stack.role;
      setOpen(found);
      setFailure(null);
    };
    load().catch((error: unknown) => {
      if (!current) return;
      opened.current = null;
      setOpen(null);
      setFailure(sentence(error));
    });
    return () => {
      current = false;
    };
  }, [source, state, rec, role, attempt]);

  // A link may name a layer or head that this recording lacks, or none; views see only what there is.
  const known = open !== null && open.recording.id === rec && ["", open.stack.role].includes(role);
  const settled =
    known && role !== "" && open.stack.layers.includes(state.layer.value) && state.head.value < open.stack.heads;
  useEffect(() => {
    if (known && !settled) settle(state, open.stack);
  }, [state, open, known, settled]);
  return { entries, open: settled ? open : null, failure, retry: () => setAttempt(attempt + 1) };
}

/** Replace what the address leaves out, or asks for in vain, by what the stack has. */
function settle(state: ViewState, stack: Open["stack"]): void {
  state.go({
    role: stack.role,
    layer: stack.layers.includes(state.layer.peek()) ? state.layer.peek() : worthSeeing(stack),
    head: Math.min(state.head.peek(), stack.heads - 1),
  });
}

/**
 * The first layers mostly look at neighbours; two thirds up, heads have found something to do. Where some layers see
 * but a window and others everything, one of the others.
 */
function worthSeeing({ layers, windows, keys }: Open["stack"]): number {
  const far = layers.filter((layer) => (windows[layer] ?? keys) >= keys);
  const wanted = Math.floor((layers.length * 2) / 3);
  const at = layers[wanted] ?? 0;
  if (far.length === 0 || far.includes(at)) return at;
  return far.toSorted((a, b) => Math.abs(layers.indexOf(a) - wanted) - Math.abs(layers.indexOf(b) - wanted))[0]!;
}

function Tabs({ state, views }: { state: ViewState; views: readonly View[] }) {
  const chosen = state.view.value;
  useEffect(() => {
    // On a phone not all fit.
    document.getElementById(`tab-${chosen}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen, views.length]);
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

/** Whether the bundled model is at hand, by what it has read, and the book is not in the list. */
function offersBook(entries: readonly RecordingEntry[], { recording }: Open): boolean {
  return recording.live && recording.model === "bundled" && !entries.some(({ name }) => name === BOOK);
}

/** Whether a stack reads words: of patches and frames nobody asks where a name comes back. */
function asksOfText({ recording, stack, tokens, apart }: Open): boolean {
  return tokens.named && !apart && (stack.role === "decoder" || !recording.pictures.includes(stack.role));
}

function layersOf({ recording }: Open): string {
  return formatNouns(
    recording.stacks.reduce((sum, { layers }) => sum + layers.length, 0),
    "layer",
  );
}

function show(state: ViewState, rec: string): void {
  state.go({ rec, role: "", x: null, y: null, z: null, query: null, key: null });
}

function RecordingPicker({ entries, state }: { entries: RecordingEntry[]; state: ViewState }) {
  if (entries.length === 0) return null;
  return (
    <label class="picker">
      <span class="picker-name">Recording</span>
      <select
        aria-label="Recording"
        data-testid="pick-recording"
        value={state.rec.value}
        onChange={(event) => show(state, event.currentTarget.value)}
      >
        {entries.map((entry) => (
          <option key={entry.id} value={entry.id} title={entry.error ?? undefined}>
            {entry.error ? `⚠ ${entry.name} (cannot be opened)` : entry.name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** An exported page holds one recording and the heads that were on screen: they have names, and no lists to choose from. */
function Exported({ open, state, view }: { open: Open; state: ViewState; view: View }) {
  const { recording, stack } = open;
  const head = `layer ${state.layer.value}, head ${state.head.value}`;
  return (
    <span data-testid="exported">
      <b>{recording.name}</b>
      {PER_HEAD.includes(view) && ` · ${recording.stacks.length > 1 ? `${stack.role}, ` : ""}${head}`}
    </span>
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
              if (next)
                state.go({
                  role,
                  layer: next.layers[0] ?? 0,
                  head: 0,
                  x: null,
                  y: null,
                  z: null,
                  query: null,
                  key: null,
                });
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
