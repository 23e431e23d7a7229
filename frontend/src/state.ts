import { batch, effect, type Signal, signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { How, MapRef } from "./source/source";

/** Where the reader is: one signal per field, all of them in the address bar, so that a link is a view. */

export const VIEWS = [
  "map",
  "text",
  "picture",
  "token",
  "atlas",
  "compare",
  "steps",
  "matter",
  "try",
  "check",
] as const;
export type View = (typeof VIEWS)[number];
export type ScaleName = "linear" | "log";
export const PALETTES = ["viridis", "cividis", "inferno", "magma", "greys"] as const;
export type PaletteName = (typeof PALETTES)[number];

interface Codec<T> {
  fallback: T;
  parse(text: string): T | undefined;
  print(value: T): string;
}

function oneOf<const T extends string>(values: readonly T[], fallback: NoInfer<T>): Codec<T> {
  return { fallback, parse: (text) => values.find((value) => value === text), print: (value) => value };
}

function text(fallback = ""): Codec<string> {
  return { fallback, parse: (value) => value, print: (value) => value };
}

function index(fallback: number): Codec<number> {
  return { fallback, parse: (value) => (/^\d+$/.test(value) ? Number(value) : undefined), print: String };
}

const maybeIndex: Codec<number | null> = {
  fallback: null,
  parse: (value) => (/^\d+$/.test(value) ? Number(value) : undefined),
  print: (value) => (value === null ? "" : String(value)),
};

const maybeNumber: Codec<number | null> = {
  fallback: null,
  parse: (value) => (value !== "" && Number.isFinite(Number(value)) ? Number(value) : undefined),
  print: (value) => (value === null ? "" : String(Number(value.toFixed(3)))),
};

/** No layer yet: the page picks one when it has seen the recording. */
const UNCHOSEN = -1;

const CODECS = {
  rec: text(),
  role: text(),
  layer: index(UNCHOSEN),
  head: index(0),
  /** Centre of the map, in keys (x) and queries (y); z is log2 of the screen pixels per cell. null: all of it. */
  x: maybeNumber,
  y: maybeNumber,
  z: maybeNumber,
  how: oneOf<How>(["mean", "max"], "max"),
  scale: oneOf<ScaleName>(["linear", "log"], "log"),
  palette: oneOf<PaletteName>(PALETTES, "viridis"),
  /** The selected query and key: the cross-hair on the map, the marked token in the text. */
  query: maybeIndex,
  key: maybeIndex,
};

type Codecs = typeof CODECS;
type FieldName = keyof Codecs;
type Value<N extends FieldName> = Codecs[N] extends Codec<infer T> ? T : never;

/** Moving to one of these is a step that the back button undoes; the rest only changes the present address. */
const STEPS: readonly FieldName[] = ["rec", "role", "layer", "head"];

export type ViewState = { [N in FieldName]: Signal<Value<N>> } & {
  view: Signal<View>;
  /** A view's own part of the address, such as `step` or `kind`; "" and the fallback are left out of it. */
  param(name: string, fallback?: string): Signal<string>;
  /** The present view as an address. */
  hash(): string;
  /** Several changes as one step of the history. */
  go(changes: Partial<{ [N in FieldName]: Value<N> }> & { view?: View }): void;
  /** Read an address into the signals. */
  read(hash: string): void;
  dispose(): void;
};

export interface StateOptions {
  /** Whether the address bar follows; a notebook has none. */
  url?: boolean;
  hash?: string;
}

export function createState({ url = true, hash }: StateOptions = {}): ViewState {
  const view = signal<View>("map");
  const names = Object.keys(CODECS) as FieldName[];
  const codecs = CODECS as unknown as Record<FieldName, Codec<unknown>>;
  const fields = Object.fromEntries(names.map((name) => [name, signal(codecs[name].fallback)])) as Record<
    FieldName,
    Signal<unknown>
  >;
  const own = new Map<string, { value: Signal<string>; fallback: string }>();
  const loose = signal<Record<string, string>>({});

  const param = (name: string, fallback = ""): Signal<string> => {
    const known = own.get(name);
    if (known) return known.value;
    const value = signal(loose.peek()[name] ?? fallback);
    own.set(name, { value, fallback });
    const rest = { ...loose.peek() };
    delete rest[name];
    loose.value = rest; // also wakes the effect below, which then listens to the new signal
    return value;
  };

  const print = (): string => {
    const query = new URLSearchParams();
    for (const name of names) {
      const value = fields[name].value;
      if (value !== codecs[name].fallback) query.set(name, codecs[name].print(value));
    }
    for (const [name, { value, fallback }] of own) {
      if (value.value !== fallback) query.set(name, value.value);
    }
    for (const [name, value] of Object.entries(loose.value)) query.set(name, value);
    const tail = query.toString();
    return `#/${view.value}${tail ? `?${tail}` : ""}`;
  };

  const read = (address: string): void => {
    const [path = "", tail = ""] = address.replace(/^#?\/?/, "").split("?", 2);
    const query = new URLSearchParams(tail);
    batch(() => {
      view.value = VIEWS.find((name) => name === path) ?? "map";
      for (const name of names) {
        const given = query.get(name);
        query.delete(name);
        fields[name].value = (given === null ? undefined : codecs[name].parse(given)) ?? codecs[name].fallback;
      }
      for (const [name, { value, fallback }] of own) {
        value.value = query.get(name) ?? fallback;
        query.delete(name);
      }
      loose.value = Object.fromEntries(query);
    });
  };

  read(hash ?? (url ? location.hash : ""));

  const state = {
    ...fields,
    view,
    param,
    read,
    hash: print,
    go(changes: Record<string, unknown>) {
      batch(() => {
        for (const [name, value] of Object.entries(changes)) {
          if (name === "view") view.value = value as View;
          else fields[name as FieldName].value = value;
        }
      });
    },
    dispose: url ? followAddress(print, read, () => placeOf(view, fields)) : () => undefined,
  };
  return state as unknown as ViewState;
}

/** What counts as a place of its own in the history, and whether the page has found all of it yet. */
interface Place {
  name: string;
  settled: boolean;
}

function placeOf(view: Signal<View>, fields: Record<FieldName, Signal<unknown>>): Place {
  const parts = STEPS.map((name) => fields[name].value);
  return { name: JSON.stringify([view.value, ...parts]), settled: !parts.includes("") };
}

function followAddress(print: () => string, read: (hash: string) => void, place: () => Place): () => void {
  let last: Place | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const write = (address: string, push: boolean): void => {
    if (address === location.hash) return;
    history[push ? "pushState" : "replaceState"](null, "", address);
  };
  const stop = effect(() => {
    const address = print();
    const here = place();
    clearTimeout(timer);
    // What a page fills in by itself, such as the default recording, is no step: back must leave the page.
    const step = last?.settled && last.name !== here.name;
    // Browsers refuse more than a few hundred address changes a minute, and a drag makes sixty a second.
    if (step) write(address, true);
    else timer = setTimeout(() => write(address, false), last?.settled ? 250 : 0);
    last = here;
  });
  const onChange = (): void => {
    if (location.hash !== print()) {
      clearTimeout(timer);
      last = null;
      read(location.hash);
    }
  };
  addEventListener("popstate", onChange);
  addEventListener("hashchange", onChange);
  return () => {
    stop();
    clearTimeout(timer);
    removeEventListener("popstate", onChange);
    removeEventListener("hashchange", onChange);
  };
}

export function mapRef(state: ViewState): MapRef {
  return {
    rec: state.rec.value,
    role: state.role.value,
    layer: state.layer.value,
    head: state.head.value,
  };
}

const StateContext = createContext<ViewState | null>(null);
export const StateProvider = StateContext.Provider;

/** The view state of the page, or of the notebook cell, that a component is in. */
export function useViewState(): ViewState {
  const state = useContext(StateContext);
  if (!state) throw new Error("useViewState needs a StateProvider above it.");
  return state;
}
