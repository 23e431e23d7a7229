/** What the keys do, and a tour of five steps: help that is there when it is asked for. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { useViewState, type View, type ViewState } from "../state";
import "./help.css";

const KEYS: [keys: string, meaning: string][] = [
  ["?", "this list"],
  ["← →", "on the row of views: the next view"],
  ["← ↑ → ↓", "Map: move the cross-hair, with Shift by eight; Text: the next token; grids of heads: the next head"],
  ["+ −", "Map and Compare: closer, wider"],
  ["0", "Map and Compare: all of it"],
  ["Enter", "Map: read the cell at the cross-hair; grids of heads: open the head"],
  ["Esc", "Map: forget the cross-hair; menus: close"],
  ["Shift and drag", "Map: mark a region and add it up"],
  ["Home, End", "Text: the first and last token; grids of heads: the first and last head of a row"],
];

/** The "?" of the bar, which the key of that name presses too. */
export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const open = (event: KeyboardEvent): void => {
      if (event.key !== "?" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      event.preventDefault();
      dialog.current?.showModal();
    };
    addEventListener("keydown", open);
    return () => removeEventListener("keydown", open);
  }, []);
  return (
    <>
      <button
        type="button"
        class="icon-button"
        aria-label="Keys and help"
        title="Keys and help (?)"
        data-testid="help"
        onClick={() => dialog.current?.showModal()}
      >
        ?
      </button>
      <dialog ref={dialog} class="help" aria-labelledby="help-title" data-testid="help-keys">
        <h2 id="help-title">Keys</h2>
        <dl>
          {KEYS.map(([keys, meaning]) => (
            <div key={keys}>
              <dt>
                <kbd>{keys}</kbd>
              </dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
        <p class="help-end">
          <TourButton onStart={() => dialog.current?.close()} />
          <button type="button" class="primary" onClick={() => dialog.current?.close()}>
            Close
          </button>
        </p>
      </dialog>
    </>
  );
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}

interface Stop {
  title: string;
  text: string;
  view: View;
}

const STOPS: readonly Stop[] = [
  {
    view: "map",
    title: "The whole map",
    text: "Each row is a token that looks back, each column a token that is looked at. Turn the wheel to fly down to one weight; point at a cell to read it exactly.",
  },
  {
    view: "text",
    title: "In the text itself",
    text: "Point at a word: the tokens it looks at light up. The strip on the right shows where light is in the whole text.",
  },
  {
    view: "token",
    title: "One token in every head",
    text: "Who moves this word? Each cell is a head, with the token it looks at most. Choose a key to see which heads move the word there.",
  },
  {
    view: "atlas",
    title: "What heads do",
    text: "Every head of the model, sorted into kinds. “Evidence for” shows the places in the text that speak for a kind.",
  },
  {
    view: "matter",
    title: "Does it matter?",
    text: "A weight says where a head looked, not whether that mattered. Block it and let the model answer.",
  },
];

const KEY = "regard-toured";

function toured(): boolean {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return true; // where nothing can be kept, nobody is asked at every visit
  }
}

function stepOf(state: ViewState) {
  return state.param("tour");
}

function TourButton({ onStart }: { onStart?: () => void }) {
  const state = useViewState();
  const start = (): void => {
    onStart?.();
    state.go({ view: STOPS[0]!.view });
    stepOf(state).value = "1";
  };
  return (
    <button type="button" data-testid="tour-start" onClick={start}>
      Tour in five steps
    </button>
  );
}

/** The tour's present step above the view; on a first visit the offer of it. */
export function Tour() {
  const state = useViewState();
  const step = useMemo(() => stepOf(state), [state]);
  const first = useMemo(() => !toured(), []);
  const at = Number(step.value);
  const stop = STOPS[at - 1];
  const end = (): void => {
    step.value = "";
    try {
      localStorage.setItem(KEY, "yes");
    } catch {
      // Then it is offered again.
    }
  };
  const go = (to: number): void => {
    const next = STOPS[to - 1];
    if (next) {
      state.go({ view: next.view });
      step.value = String(to);
    } else end();
  };
  if (!stop) return first && step.value === "" && !toured() ? <TourButton /> : null;
  return (
    <section class="tour" aria-label="Tour" data-testid="tour">
      <p aria-live="polite">
        <b>
          {at} of {STOPS.length}: {stop.title}.
        </b>{" "}
        {stop.text}
      </p>
      <span class="segmented">
        <button type="button" disabled={at === 1} onClick={() => go(at - 1)}>
          Back
        </button>
        <button type="button" class="primary" data-testid="tour-next" onClick={() => go(at + 1)}>
          {at === STOPS.length ? "Done" : "Next"}
        </button>
        {at < STOPS.length && (
          <button type="button" data-testid="tour-end" onClick={end}>
            End
          </button>
        )}
      </span>
    </section>
  );
}
