/** What a source answers, for a component to draw. */

import { type Inputs, useEffect, useState } from "preact/hooks";

export interface Answer<T> {
  /** The latest answer; it stays while the next one is on its way, so that nothing flickers. */
  value: T | null;
  failure: string | null;
  busy: boolean;
}

/** Asks again whenever one of `inputs` changes; an answer that comes too late is dropped. `null` asks nothing. */
export function useAnswer<T>(ask: ((signal: AbortSignal) => Promise<T>) | null, inputs: Inputs): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: null, failure: null, busy: ask !== null });
  useEffect(() => {
    if (!ask) {
      setAnswer({ value: null, failure: null, busy: false });
      return;
    }
    const abort = new AbortController();
    setAnswer((old) => ({ ...old, busy: true }));
    ask(abort.signal).then(
      (value) => !abort.signal.aborted && setAnswer({ value, failure: null, busy: false }),
      (error: unknown) => !abort.signal.aborted && setAnswer({ value: null, failure: sentence(error), busy: false }),
    );
    return () => abort.abort();
  }, inputs);
  return answer;
}

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
