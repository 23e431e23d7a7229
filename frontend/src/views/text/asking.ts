import { useSignalEffect } from "@preact/signals";

import type { TextModel } from "./model";

/** Ask for what lights up whenever the reader chooses or points at something else. */
export function useAsking(model: TextModel): void {
  const { state } = model;
  useSignalEffect(() => {
    // Read here what the question depends on; ask after the pointer has rested a moment.
    const deps = [
      model.shown.value,
      model.heads.value,
      model.direction.value,
      state.rec.value,
      state.role.value,
      state.layer.value,
      state.head.value,
    ];
    let forget = (): void => undefined;
    const timer = setTimeout(() => (forget = model.ask()), deps[0] === model.chosen.peek() ? 0 : 50);
    return () => {
      clearTimeout(timer);
      forget();
    };
  });
}
