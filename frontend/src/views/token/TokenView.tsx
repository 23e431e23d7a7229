import { useMemo, useState } from "preact/hooks";
import { type Open, useOpen } from "../../context";
import { useAnswer } from "../../parts/answer";
import { Bars } from "../../parts/bars";
import { Chooser, startAt } from "../../parts/chooser";
import { colourOf, inkOn } from "../../parts/colour";
import { Failure } from "../../parts/failure";
import { formatNumber, formatWeight } from "../../parts/format";
import { type HeadAt, HeadGrid } from "../../parts/head-grid";
import { Legend } from "../../parts/legend";
import { TokenLabel } from "../../parts/tokens";
import type { Everywhere, Source } from "../../source/source";
import { useViewState, type View, type ViewState } from "../../state";
import { type Measure, measuresOf, type Side, scaleOf } from "./measures";
import "./token.css";

/** One token in every head: who moves this word, and who looks at it. */
export function TokenView({ source }: { source: Source }) {
  const state = useViewState();
  const open = useOpen();
  const [asked, change] = useAsked(state, open);
  const { id: rec } = open.recording;
  const { role } = open.stack;
  const { side, query, key } = asked;
  const at = side === "query" ? { query, key: key ?? undefined } : { key: key ?? 0 };
  const offered = source.offersEverywhere(rec, role, at);
  const { value, failure } = useAnswer(!offered ? null : (signal) => source.everywhere(rec, role, at, signal), [
    source,
    rec,
    role,
    side,
    at.query,
    at.key,
  ]);
  return (
    <div class="token-view">
      <div class="token-main">
        <Ask source={source} open={open} asked={asked} onChange={change} />
        {failure && <Failure text={failure} />}
        {!offered && <p class="notice">An exported page shows the tokens that were looked at when it was made.</p>}
        {value ? (
          <Shown source={source} open={open} found={value} asked={asked} onChange={change} />
        ) : (
          !failure &&
          offered && (
            <p class="notice" role="status">
              Asking every head…
            </p>
          )
        )}
      </div>
    </div>
  );
}

interface Asked {
  side: Side;
  query: number;
  key: number | null;
  show: string;
}

/** Kept in the address: the query and key are those of the other views. */
function useAsked(state: ViewState, { stack }: Open): [Asked, (changes: Partial<Asked>) => void] {
  const own = useMemo(() => ({ side: state.param("side", "query"), show: state.param("show") }), [state]);
  const key = state.key.value;
  const asked: Asked = {
    side: own.side.value === "key" ? "key" : "query",
    query: Math.min(state.query.value ?? startAt(stack.queries), stack.queries - 1),
    key: key === null ? null : Math.min(key, stack.keys - 1),
    show: own.show.value,
  };
  const change = (changes: Partial<Asked>): void => {
    const next = { ...asked, ...changes };
    own.side.value = next.side;
    own.show.value = next.show;
    state.go({ query: next.query, key: next.key });
  };
  return [asked, change];
}

interface AskProps {
  source: Source;
  open: Open;
  asked: Asked;
  onChange(changes: Partial<Asked>): void;
}

function Ask({ source, open, asked, onChange }: AskProps) {
  const { side, query, key } = asked;
  const { tokens, queryTokens, stack } = open;
  const live = source.kind !== "static";
  return (
    <div class="panel token-ask">
      <p>
        {side === "query"
          ? "What every head of the model looks at from one token. Choose a key as well to see who moves it there."
          : "Who looks at one token, head by head."}
      </p>
      {live && (
        <div class="segmented" role="group" aria-label="Direction">
          <button
            type="button"
            aria-pressed={side === "query"}
            data-testid="side-query"
            onClick={() => onChange({ side: "query", show: "" })}
          >
            what it looks at
          </button>
          <button
            type="button"
            aria-pressed={side === "key"}
            data-testid="side-key"
            onClick={() => onChange({ side: "key", key: key ?? query, show: "" })}
          >
            who looks at it
          </button>
        </div>
      )}
      {live && side === "query" && (
        <Chooser
          role="query"
          name="Query"
          tokens={queryTokens}
          value={query}
          last={stack.queries - 1}
          onChange={(i) => onChange({ query: i })}
        />
      )}
      {live && (side === "key" || key !== null) && (
        <Chooser
          role="key"
          name="Key"
          tokens={tokens}
          value={key ?? 0}
          last={stack.keys - 1}
          onChange={(i) => onChange({ key: i })}
        />
      )}
      {live &&
        side === "query" &&
        (key === null ? (
          <button
            type="button"
            data-testid="with-key"
            onClick={() => onChange({ key: Math.max(0, query - 1), show: "weight" })}
          >
            Choose a key too
          </button>
        ) : (
          <button type="button" onClick={() => onChange({ key: null, show: "" })}>
            Any key
          </button>
        ))}
      {!live && (
        <p>
          <TokenLabel
            tokens={side === "query" ? queryTokens : tokens}
            i={side === "query" ? query : (key ?? 0)}
            role={side}
          />
        </p>
      )}
    </div>
  );
}

function Shown({ source, open, found, asked, onChange }: AskProps & { found: Everywhere }) {
  const state = useViewState();
  const measures = measuresOf(asked.side, found.weight !== null);
  const measure = measures.find(({ name }) => name === asked.show) ?? measures[0]!;
  const values = measure.values(found) ?? [];
  const scale = scaleOf(measure, values, open.stack.keys, state);
  const others = asked.side === "query" ? open.tokens : open.queryTokens;
  const [looked, look] = useState<HeadAt | null>(null);
  const here = looked ?? { layer: state.layer.value, head: state.head.value };
  const word = (i: number, h: number): string => others.label(found.top[i]![h]!);
  const label = (i: number, h: number): string =>
    `Layer ${found.layers[i]}, head ${h}: ${measure.title} ${formatNumber(values[i]![h])}; most ${asked.side === "query" ? "on" : "from"} “${word(i, h)}”, token ${found.top[i]![h]}`;
  const go = ({ layer, head }: HeadAt, view: View = "map"): void => {
    const top = found.top[found.layers.indexOf(layer)]![head]!;
    const [query, key] = asked.side === "query" ? [asked.query, asked.key ?? top] : [top, asked.key ?? 0];
    state.go({ view, layer, head, query, key, x: key, y: query, z: 4 });
  };
  return (
    <div class="token-columns">
      <section class="token-grid" aria-label="Every head">
        <div class="token-measures">
          <div class="segmented" role="group" aria-label="What colours mean">
            {measures.map(({ name, title }) => (
              <button
                key={name}
                type="button"
                aria-pressed={name === measure.name}
                data-testid={`show-${name}`}
                onClick={() => onChange({ show: name })}
              >
                {title}
              </button>
            ))}
          </div>
          <Legend scale={scale} title={measure.title} />
        </div>
        <p class="small soft">{measure.meaning}</p>
        <HeadGrid
          title={`${measure.title} in every head`}
          layers={found.layers}
          heads={found.heads}
          chosen={here}
          onLook={look}
          onOpen={source.kind === "static" ? look : go}
          label={label}
          colour={(i, h) => colourOf(values[i]![h]!, scale)}
          note={(i, h) => <span style={{ color: inkOn(colourOf(values[i]![h]!, scale)) }}>{word(i, h)}</span>}
        />
      </section>
      <aside class="token-side" aria-label="One head, and the tokens that matter most">
        <Head
          found={found}
          at={here}
          asked={asked}
          open={open}
          onGo={source.kind === "static" ? null : go}
          measure={measure}
        />
        <Bars
          title={
            asked.side === "query"
              ? "Keys that get most, mean over all heads"
              : "Queries that give most, mean over all heads"
          }
          testid="others"
          rows={found.others.map(({ position, weight }) => ({
            label: others.raw(position),
            position,
            value: weight,
            marked: asked.side === "query" && position === asked.key,
            ...(source.kind === "static"
              ? {}
              : {
                  onPick: () =>
                    onChange(
                      asked.side === "query"
                        ? { key: position, show: "weight" }
                        : { side: "query", query: position, show: "weight" },
                    ),
                }),
          }))}
          format={formatWeight}
        />
      </aside>
    </div>
  );
}

interface HeadProps {
  found: Everywhere;
  at: HeadAt;
  asked: Asked;
  open: Open;
  measure: Measure;
  onGo: ((at: HeadAt, view: View) => void) | null;
}

function Head({ found, at, asked, open, onGo }: HeadProps) {
  const i = found.layers.indexOf(at.layer);
  const top = found.top[i]?.[at.head];
  if (top === undefined) return null;
  const query = asked.side === "query";
  return (
    <section class="panel" aria-label={`Layer ${at.layer}, head ${at.head}`} data-testid="token-head">
      <h2>
        Layer {at.layer}, head {at.head}
      </h2>
      <p>
        {query ? "looks most at " : "is looked at most by "}
        <TokenLabel tokens={query ? open.tokens : open.queryTokens} i={top} role={query ? "key" : "query"} />{" "}
        <b class="number">{formatWeight(found.top_weight[i]![at.head]!)}</b>
      </p>
      <dl class="numbers">
        {found.entropy && (
          <div>
            <dt>entropy (nats)</dt>
            <dd>{formatNumber(found.entropy[i]![at.head]!)}</dd>
          </div>
        )}
        {found.mass && (
          <div>
            <dt>mass received</dt>
            <dd>{formatNumber(found.mass[i]![at.head]!)}</dd>
          </div>
        )}
        {found.weight && (
          <div>
            <dt>weight on the key</dt>
            <dd data-testid="token-weight">{formatWeight(found.weight[i]![at.head]!)}</dd>
          </div>
        )}
      </dl>
      {onGo && (
        <p class="token-go">
          <button type="button" class="primary" data-testid="token-map" onClick={() => onGo(at, "map")}>
            Open in Map
          </button>
          <button type="button" onClick={() => onGo(at, "text")}>
            Open in Text
          </button>
        </p>
      )}
    </section>
  );
}
