/** What a source answers, for a component to draw. */

import { type Inputs, useEffect, useState } from "preact/hooks";

export interface Answer<T> {
  /** The answer to this very question, null until it is there: no number stands under another one's name. */
  value: T | null;
  failure: string | null;
  busy: boolean;
}

interface Kept<T> {
  inputs: Inputs;
  value: T | null;
  failure: string | null;
}

/** Asks again whenever one of `inputs` changes; an answer that comes too late is dropped. `null` asks nothing. */
export function useAnswer<T>(ask: ((signal: AbortSignal) => Promise<T>) | null, inputs: Inputs): Answer<T> {
  const [kept, keep] = useState<Kept<T> | null>(null);
  useEffect(() => {
    if (!ask) return;
    const abort = new AbortController();
    ask(abort.signal).then(
      (value) => !abort.signal.aborted && keep({ inputs, value, failure: null }),
      (error: unknown) => !abort.signal.aborted && keep({ inputs, value: null, failure: sentence(error) }),
    );
    return () => abort.abort();
  }, inputs);
  if (!ask || kept === null || !same(kept.inputs, inputs)) return { value: null, failure: null, busy: ask !== null };
  return { value: kept.value, failure: kept.failure, busy: false };
}

function same(a: Inputs, b: Inputs): boolean {
  return a.length === b.length && a.every((part, i) => Object.is(part, b[i]));
}

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
