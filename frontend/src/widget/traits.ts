import { effect } from "@preact/signals";

import type { ViewState } from "../state";

/** The part of anywidget's model that holds the widget's traits. */
export interface Traits {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, changed: () => void): void;
  off(event: string, changed: () => void): void;
}

const NAMES = ["view", "role", "layer", "head", "query", "key", "x", "y", "z", "how", "scale", "palette"] as const;

/** Keep the view and the traits of the widget the same, whichever side moves; returns how to stop. */
export function bind(state: ViewState, traits: Traits): () => void {
  const agreed = new Map<string, unknown>();
  const read = (): void => {
    // Only what the kernel has changed: the reader may have moved on in the rest, and not have said so yet.
    const told = NAMES.map((name) => [name, traits.get(name)] as const).filter(
      ([name, value]) => agreed.get(name) !== value,
    );
    for (const [name, value] of told) agreed.set(name, value);
    state.go(Object.fromEntries(told) as Parameters<ViewState["go"]>[0]);
  };
  read();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stop = effect(() => {
    const now = NAMES.map((name) => [name, state[name].value] as const);
    clearTimeout(timer);
    // A drag changes the place sixty times a second; the kernel hears where it came to rest.
    timer = setTimeout(() => {
      const changed = now.filter(([name, value]) => agreed.get(name) !== value);
      for (const [name, value] of changed) agreed.set(name, value);
      for (const [name, value] of changed) traits.set(name, value);
      if (changed.length > 0) traits.save_changes();
    }, 120);
  });
  for (const name of NAMES) traits.on(`change:${name}`, read);
  return () => {
    stop();
    clearTimeout(timer);
    for (const name of NAMES) traits.off(`change:${name}`, read);
  };
}
