import { useEffect, useMemo } from "preact/hooks";
import { type Open, useOpen } from "../../context";
import { useAnswer } from "../../parts/answer";
import { Bars } from "../../parts/bars";
import { Chooser, startAt } from "../../parts/chooser";
import { Progress } from "../../parts/progress";
import type { Source } from "../../source/source";
import { useViewState, type ViewState } from "../../state";
import { useBlock } from "./blocking";
import { outside, parseCuts, printCuts, takesHeads } from "./cuts";
import { History } from "./History";
import { Result } from "./Result";
import { Several } from "./Several";
import { cutsOf, INSTEAD, type Instead, MODES, type Mode, type Target, tries } from "./tries";
import "./matter.css";

const NAMES: Record<Mode, string> = { edge: "An edge", token: "A token", head: "A head", several: "Several" };
const HINTS: Record<Mode, string> = {
  edge: "One query may no longer look at one key, in one head.",
  token: "Nobody may look at this token, in any head of any layer.",
  head: "This head hands nothing over; the rest of the model goes on without it.",
  several: "All of these are blocked together, in one run of the model.",
};
const SUBSTITUTES: Record<Instead, string> = {
  zero: "nothing",
  mean: "its mean over the text so far",
  resample: "its output at an earlier token",
};

/** Point at something, block it, and see whether the model's next word cares. */
export function MatterView({ source }: { source: Source }) {
  const state = useViewState();
  const open = useOpen();
  const [target, setTarget] = useTarget(state, open);
  const { block, sweep, stop, busy, failure } = useBlock(source, open);
  const mine = tries.value.filter((one) => one.rec === open.recording.id);
  const last = mine.at(-1);
  if (!open.recording.live) {
    return (
      <p class="notice" data-testid="matter-not-live">
        To block something the model must run again, and this recording is here without its model, “
        {open.recording.model}”. Start with <code>regard view --model</code> to have both.
      </p>
    );
  }
  return (
    <div class="matter">
      <p class="matter-why soft">
        A weight says where a head looked, not whether it mattered. To find out, take it away and run the model again.
      </p>
      <div class="matter-columns">
        <Aim source={source} open={open} target={target} onChange={setTarget}>
          {source.kind === "static" ? (
            <p class="small soft">
              This is an exported page: it shows what was blocked when it was made. To block more, open the recording
              with <code>regard view</code>.
            </p>
          ) : (
            <div class="matter-buttons">
              <button
                type="button"
                class="primary matter-go"
                data-testid="block"
                disabled={busy !== null || cutsOf(target).length === 0}
                onClick={() => void block(target)}
              >
                {busy ? "Running the model…" : target.mode === "several" ? "Block them" : "Block it"}
              </button>
              {target.mode === "edge" && (
                <button
                  type="button"
                  data-testid="sweep"
                  disabled={busy !== null}
                  title="Block each of the heaviest keys of this query by itself"
                  onClick={() => void sweep(target)}
                >
                  Each heavy key by itself
                </button>
              )}
              {target.mode !== "several" && (
                <button type="button" data-testid="collect" onClick={() => setTarget(collected(target))}>
                  Add to several
                </button>
              )}
            </div>
          )}
          {busy && (
            <Progress
              label={busy.label}
              done={busy.done}
              total={busy.total}
              secondsLeft={busy.secondsLeft}
              onCancel={stop}
            />
          )}
          {failure && (
            <p class="failure" role="alert">
              {failure}
            </p>
          )}
        </Aim>
        <div class="panel matter-result">
          {last ? (
            <Result made={last} length={open.stack.queries} />
          ) : (
            <p class="notice">
              {source.kind === "static"
                ? "Nothing was blocked."
                : "Choose what to block, and block it: what the model says next, before and after, appears here."}
            </p>
          )}
        </div>
      </div>
      {mine.length > 0 && <History tries={mine} open={open} onAgain={setTarget} />}
      <p class="small soft">
        One cut, one place in one text: other heads may stand in for what you took away, so “it did not matter” is about
        this prediction only.
      </p>
    </div>
  );
}

/** What was pointed at joins what is blocked together. */
function collected(target: Target): Target {
  return { ...target, mode: "several", cuts: [...target.cuts, ...cutsOf(target)] };
}

interface AimProps {
  source: Source;
  open: Open;
  target: Target;
  onChange(target: Target): void;
  children: preact.ComponentChildren;
}

function Aim({ source, open, target, onChange, children }: AimProps) {
  const { tokens, queryTokens, stack } = open;
  const state = useViewState();
  const { mode, layer, head, query } = target;
  const change = (changes: Partial<Target>): void => onChange({ ...target, ...changes });
  return (
    <div class="panel aim">
      {source.kind !== "static" && (
        <div class="segmented" role="group" aria-label="What to block">
          {MODES.map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={one === mode}
              data-testid={`mode-${one}`}
              onClick={() => change({ mode: one })}
            >
              {NAMES[one]}
            </button>
          ))}
        </div>
      )}
      <p class="soft small">{HINTS[mode]}</p>
      {source.kind !== "static" && (
        <Chooser
          role="query"
          name={mode === "edge" ? "Query" : "Look at"}
          tokens={queryTokens}
          value={query}
          last={stack.queries - 1}
          onChange={(i) => change({ query: i, at: i, key: Math.min(target.key, i) })}
        />
      )}
      {mode === "several" && (
        <Several source={source} open={open} cuts={target.cuts} onChange={(cuts) => change({ cuts })} />
      )}
      {source.kind !== "static" && (mode === "edge" || mode === "token") && (
        <Chooser
          role="key"
          name="Key"
          tokens={tokens}
          value={target.key}
          last={Math.min(query, stack.keys - 1)}
          onChange={(i) => change({ key: i })}
        />
      )}
      {mode === "head" && (
        <p>
          Layer {layer}, head {head}
          {source.kind === "static" ? "." : ", chosen in the bar above."}
        </p>
      )}
      {(mode === "edge" || mode === "token") && (
        <Heaviest
          source={source}
          target={target}
          open={open}
          fresh={state.key.value === null}
          onPick={(key) => change({ key })}
        />
      )}
      {source.kind !== "static" && mode === "edge" && query < stack.queries - 1 && (
        <label class="picker">
          <span class="soft small">Look at what is said</span>
          <select
            value={target.at === query ? "here" : "end"}
            onChange={(event) => change({ at: event.currentTarget.value === "here" ? query : stack.queries - 1 })}
          >
            <option value="here">after the query</option>
            <option value="end">at the end of the text</option>
          </select>
        </label>
      )}
      {source.kind !== "static" && takesHeads(cutsOf(target)) && (
        <label class="picker">
          <span class="soft small">A blocked head gives</span>
          <select
            value={target.instead}
            data-testid="instead"
            onChange={(event) => change({ instead: event.currentTarget.value as Instead })}
          >
            {INSTEAD.map((one) => (
              <option key={one} value={one}>
                {SUBSTITUTES[one]}
              </option>
            ))}
          </select>
        </label>
      )}
      {children}
    </div>
  );
}

interface HeaviestProps {
  source: Source;
  target: Target;
  open: Open;
  /** Nothing was pointed at yet: the heaviest key is a good start. */
  fresh: boolean;
  onPick(key: number): void;
}

function Heaviest({ source, target, open, fresh, onPick }: HeaviestProps) {
  const { id: rec } = open.recording;
  const { role } = open.stack;
  const { layer, head, query, key } = target;
  const row = useAnswer(
    (signal) => source.row({ rec, role, layer, head }, query, 6, signal),
    [source, rec, role, layer, head, query],
  );
  const heaviest = row.value?.query === query ? row.value.top[0] : undefined;
  useEffect(() => {
    if (fresh && heaviest) onPick(heaviest.key);
  }, [fresh, heaviest?.key]);
  if (row.failure) return <p class="small soft">{row.failure}</p>;
  return (
    <Bars
      title="Where it looks most"
      testid="heaviest"
      top={1}
      rows={(row.value?.top ?? []).map((one) => ({
        label: open.tokens.raw(one.key),
        position: one.key,
        value: one.weight,
        marked: one.key === key,
        ...(source.kind === "static" ? {} : { onPick: () => onPick(one.key) }),
      }))}
      format={(value) => value.toFixed(3)}
    />
  );
}

/** What is pointed at, kept in the address. */
function useTarget(state: ViewState, { stack }: Open): [Target, (target: Target) => void] {
  const own = useMemo(
    () => ({
      mode: state.param("block", "edge"),
      at: state.param("at"),
      cuts: state.param("cuts"),
      instead: state.param("instead", "zero"),
    }),
    [state],
  );
  const last = stack.queries - 1;
  const query = Math.min(state.query.value ?? startAt(stack.queries), last);
  const target: Target = {
    mode: MODES.find((mode) => mode === own.mode.value) ?? "edge",
    layer: state.layer.value,
    head: state.head.value,
    query,
    key: Math.min(state.key.value ?? Math.max(0, query - 1), stack.keys - 1),
    at: own.at.value === "end" ? last : query,
    cuts: parseCuts(own.cuts.value).filter((cut) => outside(cut, stack) === null),
    instead: INSTEAD.find((one) => one === own.instead.value) ?? "zero",
  };
  const set = (next: Target): void => {
    state.go({ layer: next.layer, head: next.head, query: next.query, key: next.key });
    own.mode.value = next.mode;
    own.at.value = next.at === next.query ? "" : "end";
    own.cuts.value = printCuts(next.cuts);
    own.instead.value = next.instead;
  };
  return [target, set];
}
