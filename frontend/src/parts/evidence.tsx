/** What speaks for a kind of head: how often it does what the kind says, along the text, and the heaviest places. */

import { useEffect } from "preact/hooks";
import { useOpen } from "../context";
import type { Evidence, MapRef, Source } from "../source/source";
import type { View } from "../state";
import { useAnswer } from "./answer";
import { Curve } from "./curve";
import { formatCount, formatPercent, formatWeight } from "./format";
import type { TokenTable } from "./tokens";
import { visible } from "./tokens";
import "./evidence.css";

const LISTED = 8;

export interface EvidenceProps {
  source: Source;
  map: MapRef;
  kind: string;
  /** Go to a place in another view; null where there is no other. */
  onGo: ((view: View, query: number | null, key: number | null) => void) | null;
  onFound?: (found: Evidence) => void;
}

export function EvidencePanel({ source, map, kind, onGo, onFound }: EvidenceProps) {
  const { rec, role, layer, head } = map;
  const { value, failure } = useAnswer(
    (signal) => source.evidence({ rec, role, layer, head }, kind, signal),
    [source, rec, role, layer, head, kind],
  );
  useEffect(() => {
    if (value) onFound?.(value);
  }, [value]);
  if (failure)
    return (
      <p class="small soft" role="status">
        {failure}
      </p>
    );
  if (!value)
    return (
      <p class="small soft" role="status">
        Looking through the map…
      </p>
    );
  return (
    <div class="evidence-panel" data-testid="evidence">
      <p class="small">{summary(value)}</p>
      <Curve
        title="Weight on it, along the text"
        x={{ label: "query position" }}
        y={{ label: "mean weight", domain: [0, Math.max(0.05, ...value.along.weight)] }}
        points={value.along.position.map((x, i) => ({ x, y: value.along.weight[i]! }))}
        {...(value.hits > 0
          ? {
              fit: value.along.position.map((x, i) => ({ x, y: value.along.hits[i]! })),
              fitLabel: "dashed: share of hits",
            }
          : {})}
        empty="No query sees such a key."
      />
      {value.places.length > 0 && <Places found={value} onGo={onGo} />}
    </div>
  );
}

/** The finding in a sentence. */
function summary({ looks_for, queries, hits, mean, step, kind }: Evidence): string {
  const sample = step > 1 ? ` (1 query in ${step} was looked at)` : "";
  if (queries === 0) return `Looks for ${looks_for}: no query sees any.`;
  if (kind === "uniform")
    return `Looks at ${looks_for}; the mean over ${formatCount(queries)} queries is ${mean.toFixed(2)}.`;
  return `Looks for ${looks_for}: ${formatPercent(mean)} of the weight of ${formatCount(queries)} queries${sample}. For ${formatPercent(hits / queries)} of them it is the heaviest key.`;
}

function Places({ found, onGo }: { found: Evidence; onGo: EvidenceProps["onGo"] }) {
  const { tokens, queryTokens } = useOpen();
  const listed = found.places.slice(0, LISTED);
  return (
    <>
      <h3 class="small">Heaviest places</h3>
      <ol class="places" data-testid="places">
        {listed.map(({ query, key, weight, source }) => (
          <li key={query}>
            <span class="place-text">
              <Words
                query={query}
                at={key}
                source={source}
                kind={found.kind}
                tokens={tokens}
                queryTokens={queryTokens}
              />
            </span>
            <span class="number">{formatWeight(weight)}</span>
            {onGo && (
              <span class="place-go">
                <button
                  type="button"
                  aria-label={`Query ${query}, key ${key}: show in Map`}
                  onClick={() => onGo("map", query, key)}
                >
                  Map
                </button>
                <button
                  type="button"
                  aria-label={`Query ${query}, key ${key}: show in Text`}
                  onClick={() => onGo("text", query, key)}
                >
                  Text
                </button>
              </span>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}

interface WordsProps {
  query: number;
  at: number;
  source: number | null;
  kind: string;
  tokens: TokenTable;
  queryTokens: TokenTable;
}

/** “A B … A → B” for what repeats, “query → key” for all else; places are token numbers. */
function Words({ query, at, source, kind, tokens, queryTokens }: WordsProps) {
  const say = (table: TokenTable, i: number): string => visible(table.raw(i));
  const from = (
    <span class="token query" title={`query ${query}`}>
      {say(queryTokens, query)}
    </span>
  );
  const to = (
    <span class="token key" title={`key ${at}`}>
      {say(tokens, at)}
    </span>
  );
  if (kind === "induction" && source !== null) {
    return (
      <>
        <span class="token" title={`key ${source}`}>
          {say(tokens, source)}
        </span>{" "}
        {to} … {from} → {to}
      </>
    );
  }
  return (
    <>
      {from} → {to}
    </>
  );
}
