import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useOpen } from "../../context";
import { useAnswer } from "../../parts/answer";
import { Chooser, startAt } from "../../parts/chooser";
import { Token } from "../../parts/token-chip";
import type { Source } from "../../source/source";
import { mapRef, useViewState, type ViewState } from "../../state";
import { HeadsFigure, MixFigure, NextFigure, ParallelFigure, TokensFigure, VectorsFigure } from "./figures";
import { type Column, KeyTable } from "./KeyTable";
import { readWalk } from "./read";
import { withSink } from "./softmax";
import { WhatIf } from "./WhatIf";
import { heaviest, type StepName, stepsOf, type Walk } from "./walk";
import { words } from "./words";
import "./steps.css";
import "./figures.css";

/** Rows of keys that a reader takes in at once. */
const MOST = 8;

/** One query walked through attention, one step at a time, with real numbers. */
export function StepsView({ source }: { source: Source }) {
  const state = useViewState();
  const { queryTokens, stack } = useOpen();
  const example = useMemo(() => state.param("example"), [state]);
  const row = useMemo(() => state.param("row"), [state]);
  const query = Math.min(state.query.value ?? startAt(stack.queries), stack.queries - 1);
  const { rec, role, layer, head } = mapRef(state);
  const names = useAnswer(() => source.workedNames(), [source]);
  const answer = useAnswer(
    async (signal) => {
      if (example.value) return source.worked(example.value);
      return source.steps({ rec, role, layer, head }, { query }, signal);
    },
    [source, example.value, rec, role, layer, head, query],
  );
  const walk = useMemo(
    () => (answer.value ? readWalk(answer.value, row.value === "" ? null : Number(row.value)) : null),
    [answer.value, row.value],
  );
  return (
    <div class="steps">
      <div class="steps-what">
        {source.kind !== "static" && (
          <label class="picker">
            <span>Follow</span>
            <select
              data-testid="pick-example"
              value={example.value}
              onChange={(event) => {
                example.value = event.currentTarget.value;
                row.value = "";
              }}
            >
              <option value="">a query of this head</option>
              {(names.value ?? []).map((name) => (
                <option key={name} value={name}>
                  textbook example: {name}
                </option>
              ))}
            </select>
          </label>
        )}
        {!example.value && source.kind !== "static" && (
          <Chooser
            role="query"
            name="Query"
            tokens={queryTokens}
            value={query}
            last={stack.queries - 1}
            onChange={(i) => (state.query.value = i)}
          />
        )}
        {walk && walk.queries.length > 1 && <Rows walk={walk} onChange={(i) => (row.value = String(i))} />}
      </div>
      {answer.failure && (
        <p class="notice failure" role="alert">
          {answer.failure}
        </p>
      )}
      {!walk && !answer.failure && (
        <p class="notice" role="status">
          Working it out…
        </p>
      )}
      {walk && <Stage source={source} state={state} walk={walk} query={example.value ? null : query} />}
    </div>
  );
}

/** Which token of a worked example is followed. */
function Rows({ walk, onChange }: { walk: Walk; onChange(row: number): void }) {
  return (
    <div class="segmented" role="group" aria-label="Query">
      {walk.queries.map((token, i) => (
        <button
          key={i}
          type="button"
          aria-pressed={i === walk.parallelRow}
          data-testid={`row-${i}`}
          onClick={() => onChange(i)}
        >
          {token}
        </button>
      ))}
    </div>
  );
}

function Stage({ source, state, walk, query }: { source: Source; state: ViewState; walk: Walk; query: number | null }) {
  const step = useMemo(() => state.param("step", "tokens"), [state]);
  const steps = stepsOf(walk);
  const at = Math.max(0, steps.indexOf(step.value as StepName));
  const [back, setBack] = useState(false);
  const go = (to: number): void => {
    const next = steps[to];
    if (!next) return;
    setBack(to < at);
    step.value = next;
  };
  // From where the signal is, not from what was drawn last: keys can come faster than pictures.
  const move = (by: number): void => go(Math.max(0, steps.indexOf(step.peek() as StepName)) + by);
  useArrows(move);
  const name = steps[at]!;
  const text = words(name, walk);
  return (
    <>
      <nav class="rail" aria-label="Steps">
        <ol>
          {steps.map((one, i) => (
            <li key={one} class={i < at ? "rail-done" : undefined}>
              <button
                type="button"
                aria-current={i === at ? "step" : undefined}
                data-testid={`step-${one}`}
                onClick={() => go(i)}
              >
                <i aria-hidden="true">{i + 1}</i>
                <span>{words(one, walk).short}</span>
              </button>
            </li>
          ))}
        </ol>
      </nav>
      <article class={`stage panel${back ? " stage-back" : ""}`} key={name}>
        <header aria-live="polite" data-testid="step-words">
          <h2>
            <span class="stage-count">
              {at + 1} of {steps.length}
            </span>{" "}
            {text.title}
          </h2>
          {text.formula && (
            <p class="stage-formula">
              <code>{text.formula}</code>
            </p>
          )}
          <p class="stage-sentence">{text.sentence}</p>
        </header>
        <Figure source={source} state={state} walk={walk} name={name} query={query} />
      </article>
      <div class="stage-buttons">
        <button type="button" data-testid="back" disabled={at === 0} onClick={() => move(-1)}>
          ← Back
        </button>
        <span class="soft small stage-hint">← and → on the keyboard</span>
        <button
          type="button"
          class="primary"
          data-testid="next"
          disabled={at === steps.length - 1}
          onClick={() => move(1)}
        >
          Next →
        </button>
      </div>
    </>
  );
}

interface FigureProps {
  source: Source;
  state: ViewState;
  walk: Walk;
  name: StepName;
  query: number | null;
}

function Figure({ source, state, walk, name, query }: FigureProps) {
  switch (name) {
    case "tokens":
      return <TokensFigure walk={walk} />;
    case "projections":
      return <VectorsFigure walk={walk} most={MOST} />;
    case "scores":
    case "scaled":
    case "masked":
      return <Worked walk={walk} at={name} />;
    case "weights":
      return <Softmax source={source} state={state} walk={walk} query={query} />;
    case "mix":
      return <MixFigure walk={walk} most={MOST} />;
    case "parallel":
      return <ParallelFigure walk={walk} />;
    case "heads":
      return <HeadsFigure walk={walk} head={state.head.value} />;
    case "next":
      return <NextFigure walk={walk} />;
  }
}

function Worked({ walk, at }: { walk: Walk; at: Column }) {
  const [focus, setFocus] = useState(heaviest(walk.weights));
  const line = walk.worked[at][focus];
  return (
    <>
      <KeyTable walk={walk} at={at} most={MOST} focus={focus} onFocus={setFocus} />
      {line && (
        <p class="worked-line" data-testid="worked-line">
          <Token text={walk.keys[focus]?.token ?? ""} role={focus === walk.self ? "query" : "key"} />{" "}
          <span>{line}</span>
        </p>
      )}
    </>
  );
}

/** The table of weights, and beside it the same softmax under the reader's hand. */
function Softmax({ source, state, walk, query }: Omit<FigureProps, "name">) {
  const temperature = useMemo(() => state.param("t", "1"), [state]);
  const root = useMemo(() => state.param("root", "yes"), [state]);
  const { rec, role, layer, head } = mapRef(state);
  const complete = query === null || walk.keys.filter((key) => key.allowed).length >= walk.visible;
  const row = useAnswer(complete ? null : (signal) => source.weights({ rec, role, layer, head }, { query }, signal), [
    source,
    rec,
    role,
    layer,
    head,
    query,
    complete,
  ]);
  // Weights determine scores up to a constant, which softmax forgets: no need to send every score.
  const logits = useMemo(
    () =>
      row.value
        ? withSink(Array.from(row.value, Math.log), Array.from(row.value))
        : withSink(walk.masked, walk.weights),
    [row.value, walk],
  );
  const places = row.value ? walk.keys.map((key) => key.position) : walk.keys.map((_, i) => i);
  return (
    <div class="two">
      <div>
        <Worked walk={walk} at="weights" />
      </div>
      <WhatIf
        walk={walk}
        logits={logits}
        places={places}
        most={MOST}
        temperature={Math.min(10, Math.max(0.1, Number(temperature.value) || 1))}
        scaled={root.value !== "no"}
        onTemperature={(value) => (temperature.value = String(value))}
        onScaled={(value) => (root.value = value ? "yes" : "no")}
      />
    </div>
  );
}

/** Left and right turn the pages, unless the reader is typing or on a control that uses them. */
function useArrows(move: (by: number) => void): void {
  const latest = useRef(move);
  latest.current = move;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      const target = event.target instanceof Element ? event.target : null;
      const taken = target?.closest("input, select, textarea, [role=tablist], .grid-scroll, [contenteditable]");
      if (by === 0 || taken || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      latest.current(by);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
