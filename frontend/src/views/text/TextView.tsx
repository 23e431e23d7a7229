import "./text.css";

import { useEffect, useMemo, useRef } from "preact/hooks";

import { useOpen } from "../../context";
import { useExporter } from "../../export/exporter";
import { formatNumber, formatPercent, formatWeight } from "../../parts/format";
import { TokenSearch } from "../../parts/search";
import { Segmented } from "../../parts/segmented";
import { TokenLabel, visible } from "../../parts/tokens";
import { around, wordAt } from "../../parts/words";
import type { Source } from "../../source/source";
import { useViewState } from "../../state";
import { useAsking } from "./asking";
import { Bipartite } from "./Bipartite";
import { textExporter } from "./exporting";
import { entropy } from "./light";
import { TextModel } from "./model";
import { Page, type PageLayout, type Part } from "./Page";
import { Question } from "./Question";

/** The document, with the tokens that one token looks at, or is looked at by, lit up. */
export function TextView({ source }: { source: Source }) {
  const state = useViewState();
  const open = useOpen();
  const model = useMemo(() => new TextModel(source, state, open), [source, open.recording.id, open.stack.role]);
  const pages = useRef(new Map<Part, PageLayout>());
  const main = useRef<HTMLDivElement>(null);
  const lines = (): SVGSVGElement | null => main.current?.querySelector<SVGSVGElement>(".bipartite svg") ?? null;
  useExporter(
    state,
    useMemo(() => textExporter(model, () => [...pages.current.values()], lines), [model]),
  );
  useAsking(model);
  return (
    <div class="text-view">
      <div class="text-main" ref={main}>
        <Bar model={model} />
        {model.arcs.value === "lines" ? <Bipartite model={model} /> : <Pages model={model} pages={pages.current} />}
      </div>
      <aside class="text-side" aria-label="What lights up">
        <Summary model={model} />
      </aside>
    </div>
  );
}

/** One text, or, where queries and keys are of two, both: the one to pick in above the one that lights up. */
function Pages({ model, pages }: { model: TextModel; pages: Map<Part, PageLayout> }) {
  const keep =
    (part: Part) =>
    (layout: PageLayout | null): void =>
      void (layout ? pages.set(part, layout) : pages.delete(part));
  useEffect(() => () => pages.clear(), [pages]);
  if (!model.open.apart) return <Page model={model} part="both" label="The text" onLayout={keep("both")} />;
  const back = model.direction.value === "queries";
  const names = back
    ? ["What the encoder read", "What the decoder wrote"]
    : ["What the decoder wrote", "What the encoder read"];
  return (
    <div class="two-texts">
      {(["picked", "lit"] as const).map((part, i) => (
        <section key={`${part} ${back}`} class={`side-${(i === 0) === back ? "key" : "query"}`}>
          <h3>{names[i]}</h3>
          <Page model={model} part={part} label={names[i]!} onLayout={keep(part)} />
        </section>
      ))}
    </div>
  );
}

function Bar({ model }: { model: TextModel }) {
  const { scale } = model.state;
  const live = model.source.kind !== "static";
  const lines = live || model.arcs.value === "lines";
  const arcs = [
    ["off", "light"],
    ...(model.open.apart ? [] : [["on", "arcs"]]),
    ...(lines ? [["lines", "lines"]] : []),
  ] as [string, string][];
  return (
    <div class="text-bar" role="group" aria-label="How to look">
      <Question model={model} />
      <Segmented name="Arcs" value={model.arcs.value} values={arcs} onChange={(value) => (model.arcs.value = value)} />
      <Segmented
        name="Units"
        value={model.words.value}
        values={[
          ["", "tokens"],
          ["on", "words"],
        ]}
        onChange={(value) => (model.words.value = value)}
      />
      <Segmented
        name="Brightness"
        value={scale.value}
        values={[
          ["log", "log"],
          ["linear", "linear"],
        ]}
        onChange={(value) => (scale.value = value)}
      />
    </div>
  );
}

function Summary({ model }: { model: TextModel }) {
  const { picked } = model;
  const shown = model.shown.value;
  const back = model.direction.value === "queries";
  const weights = model.weights.value;
  const top = model.top.value;
  return (
    <>
      {model.source.kind !== "static" && (
        <section class="text-card">
          <TokenSearch tokens={picked} onGo={(i) => model.choose(i)} />
        </section>
      )}
      <section class="text-card" data-testid="summary" aria-live="polite">
        {model.failure.value && <p class="small failure">{model.failure.value}</p>}
        {shown === null ? (
          <p class="soft">Point at a word, or click it: the tokens it looks at light up.</p>
        ) : (
          <>
            <p>
              <TokenLabel tokens={picked} i={shown} role={back ? "key" : "query"} />{" "}
              <span class="soft">{back ? "is looked at by" : "looks at"}</span>
            </p>
            <ol class="top-list">
              {top.map(({ index, weight }) => (
                <li key={index}>
                  <button
                    type="button"
                    class="top-item"
                    disabled={model.open.apart ? model.source.kind === "static" : !model.offers(index)}
                    onClick={() => model.follow(index)}
                  >
                    <Fragment model={model} i={index} />
                    <span class="top-bar" aria-hidden="true">
                      <i style={{ width: `${(weight / (top[0]?.weight ?? 1)) * 100}%` }} />
                    </span>
                    <span class="number" data-testid="top-weight">
                      {formatWeight(weight)}
                    </span>
                  </button>
                </li>
              ))}
            </ol>
            <Light model={model} />
            {weights && (
              <Totals weights={weights} listed={top.reduce((sum, lit) => sum + lit.weight, 0)} model={model} />
            )}
          </>
        )}
      </section>
    </>
  );
}

/** A token, or its whole word, with the words around it: a piece such as “ng” says nothing by itself. */
function Fragment({ model, i }: { model: TextModel; i: number }) {
  const { lit } = model;
  const whole = model.words.value === "on" ? visible(wordAt(lit, model.starts.value, i)) : lit.label(i);
  const [before, after] = around(lit, i);
  return (
    <span class="fragment">
      <span class={`token ${model.direction.value === "queries" ? "query" : "key"}`} title={`token ${i}`}>
        <span class="token-text">{whole}</span>
        <span class="token-index">{i}</span>
      </span>
      <span class="fragment-around small soft">
        {before}
        {/^\s/.test(lit.raw(i)) && " "}
        <b>{lit.raw(i).trim() || "␣"}</b>
        {after}
      </span>
    </span>
  );
}

/** What a light means: from nothing to the heaviest token. */
function Light({ model }: { model: TextModel }) {
  const most = model.top.value[0]?.weight;
  if (!most) return null;
  const log = model.state.scale.value === "log";
  return (
    <figure class="light-legend small soft" data-testid="light-legend">
      <figcaption>weight of a {model.words.value === "on" ? "word" : "token"}</figcaption>
      <i aria-hidden="true" class={`look-${model.direction.value}`} />
      <span>{log ? `below ${formatWeight(most / 1000)}` : "0"}</span>
      <span>{formatWeight(most)}</span>
    </figure>
  );
}

function Totals({ weights, listed, model }: { weights: Float32Array; listed: number; model: TextModel }) {
  const mass = weights.reduce((sum, weight) => sum + weight, 0);
  if (model.direction.value === "queries") {
    return (
      <p class="small soft">
        It receives {formatNumber(mass, 4)} in all; those listed give {formatPercent(mass > 0 ? listed / mass : 0)} of
        it.
      </p>
    );
  }
  if (model.heads.value === "max")
    return <p class="small soft">The heaviest of all heads of this layer, token by token.</p>;
  return (
    <p class="small soft">
      Those listed hold {formatPercent(listed)} of the weight. Entropy {formatNumber(entropy(weights), 3)} nats: as
      spread as {formatNumber(Math.exp(entropy(weights)), 3)} equal tokens.
    </p>
  );
}
