import { useMemo, useState } from "preact/hooks";
import { type Open, openStack, useOpen } from "../../context";
import { useAnswer } from "../../parts/answer";
import { useAtlas } from "../../parts/atlas";
import { colourOf, inkOn } from "../../parts/colour";
import { Failure } from "../../parts/failure";
import { formatCount, formatNumber } from "../../parts/format";
import { type HeadAt, HeadGrid } from "../../parts/head-grid";
import { spoken } from "../../parts/kinds";
import { Legend } from "../../parts/legend";
import { Progress } from "../../parts/progress";
import { Scatter } from "../../parts/scatter";
import { type TokenTable, visible } from "../../parts/tokens";
import type { Alignment, Atlas, AtlasHead, Source } from "../../source/source";
import { useViewState } from "../../state";
import { common, type Gap, gaps } from "./align";
import { DifferenceMap } from "./DifferenceMap";
import "./compare.css";

/** Two recordings beside each other: tokens, maps, heads. */
export function CompareView({ source }: { source: Source }) {
  const state = useViewState();
  const open = useOpen();
  const other = useMemo(() => state.param("with"), [state]);
  const list = useAnswer(() => source.recordings(), [source, open.recording.id]);
  const others = (list.value?.recordings ?? []).filter((one) => !one.error && one.stacks.includes(open.stack.role));
  const chosen = others.find(({ id }) => id === other.value);
  const role = open.stack.role;
  const second = useAnswer(chosen ? async () => openStack(source, await source.recording(chosen.id), role) : null, [
    source,
    chosen?.id,
    role,
  ]);
  return (
    <div class="compare">
      {source.kind !== "static" && (
        <div class="panel compare-pick">
          <p>
            <b>{open.recording.name}</b> beside{" "}
            <select
              aria-label="The second recording"
              data-testid="compare-with"
              value={chosen?.id ?? ""}
              onChange={(event) => (other.value = event.currentTarget.value)}
            >
              <option value="">choose a recording…</option>
              {others.map(({ id, name }) => (
                <option key={id} value={id}>
                  {name}
                  {id === open.recording.id ? " (itself)" : ""}
                </option>
              ))}
            </select>
          </p>
          <p class="small soft">
            Two prompts, two models, two checkpoints: “Try it” records a second text, and{" "}
            <code>regard view FOLDER</code> opens every recording in a folder.
          </p>
        </div>
      )}
      {(list.failure ?? second.failure) && <Failure text={(list.failure ?? second.failure)!} />}
      {second.value && <Both key={second.value.recording.id} source={source} first={open} second={second.value} />}
    </div>
  );
}

function Both({ source, first, second }: { source: Source; first: Open; second: Open }) {
  const state = useViewState();
  const [rec, other, role] = [first.recording.id, second.recording.id, first.stack.role];
  const alignment = useAnswer((signal) => source.alignment(rec, role, other, signal), [source, rec, role, other]);
  const distances = useAnswer((signal) => source.distances(rec, role, other, signal), [source, rec, role, other]);
  if (alignment.failure) return <Failure text={alignment.failure} />;
  if (!alignment.value)
    return (
      <p class="notice" role="status">
        Aligning the texts…
      </p>
    );
  const at = { layer: state.layer.value, head: state.head.value };
  const choose = ({ layer, head }: HeadAt): void => state.go({ layer, head });
  const found = distances.value;
  const high = roundTop(found?.distance.flat() ?? []);
  const scale = { palette: state.palette.value, scale: "linear", low: 0, high } as const;
  const shared = found?.layers.includes(at.layer) && at.head < found.heads;
  return (
    <>
      <Texts first={first} second={second} alignment={alignment.value} />
      <div class="compare-columns">
        <section aria-label="How far heads are apart">
          <h2>Which heads differ</h2>
          {distances.failure && <Failure small text={distances.failure} />}
          {found && (
            <>
              <p class="small soft">
                The share of weight that would have to move, mean over {formatCount(found.queries)} of{" "}
                {formatCount(found.shared)} queries that both texts have: 0 is the same, 1 nothing in common.
              </p>
              <Legend scale={scale} title="distance" />
              <HeadGrid
                title="Distance of every head"
                layers={found.layers}
                heads={found.heads}
                chosen={at}
                colour={(i, h) => colourOf(found.distance[i]![h]!, scale)}
                label={(i, h) => `Layer ${found.layers[i]}, head ${h}: distance ${found.distance[i]![h]!.toFixed(2)}`}
                note={(i, h) => (
                  <span style={{ color: inkOn(colourOf(found.distance[i]![h]!, scale)) }}>
                    {found.distance[i]![h]!.toFixed(2)}
                  </span>
                )}
                onLook={() => undefined}
                onOpen={source.kind === "static" ? () => undefined : choose}
              />
            </>
          )}
        </section>
        <section aria-label="Difference map">
          <h2>Where they differ</h2>
          {found && !shared && <p class="small soft">Only one of the two has this head: choose one in the grid.</p>}
          {shared && (
            <DifferenceMap
              source={source}
              map={{ rec, role, ...at }}
              other={other}
              alignment={alignment.value}
              tokens={[first.tokens, second.tokens]}
            />
          )}
        </section>
      </div>
      <Atlases source={source} first={rec} second={other} role={role} at={at} onPick={choose} />
    </>
  );
}

/** The top of the colours: heads that are all close to each other are told apart too. */
export function roundTop(values: readonly number[]): number {
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  return [0.05, 0.1, 0.2, 0.5].find((top) => top >= most) ?? 1;
}

const LISTED = 12;

function Texts({ first, second, alignment }: { first: Open; second: Open; alignment: Alignment }) {
  const apart = gaps(alignment.keys, first.stack.keys, second.stack.keys);
  const both = common(alignment.keys);
  return (
    <section class="panel" aria-label="The two texts" data-testid="compare-texts">
      <p>
        {formatCount(both)} tokens are in both; {formatCount(first.stack.keys - both)} of{" "}
        {formatCount(first.stack.keys)} only in the first, {formatCount(second.stack.keys - both)} of{" "}
        {formatCount(second.stack.keys)} only in the second.
      </p>
      {apart.length > 0 && (
        <ol class="compare-gaps">
          {apart.slice(0, LISTED).map((gap) => (
            <li key={`${gap.first} ${gap.second}`}>
              <Side gap={gap.first} tokens={first.tokens} role="query" /> <span class="soft">⇄</span>{" "}
              <Side gap={gap.second} tokens={second.tokens} role="key" />
            </li>
          ))}
        </ol>
      )}
      {apart.length > LISTED && <p class="small soft">… and {formatCount(apart.length - LISTED)} more places.</p>}
    </section>
  );
}

/** One side of a stretch that differs, its middle left out where it is long. */
function Side({ gap: [start, stop], tokens, role }: { gap: Gap["first"]; tokens: TokenTable; role: "query" | "key" }) {
  if (start === stop) return <span class="soft">nothing</span>;
  const most = 16;
  const words = Array.from({ length: Math.min(most, stop - start) }, (_, i) => tokens.raw(start + i));
  return (
    <span class={`token ${role}`} title={`tokens ${start} to ${stop - 1}`}>
      <span class="token-text">
        {visible(words.join(""))}
        {stop - start > most ? ` … (${formatCount(stop - start)} tokens)` : ""}
      </span>
    </span>
  );
}

interface AtlasesProps {
  source: Source;
  first: string;
  second: string;
  role: string;
  at: HeadAt;
  onPick(at: HeadAt): void;
}

/** A statistic, or the score for a kind, of every head: first against second. An atlas takes a while, so it is asked for. */
function Atlases({ source, first, second, role, at, onPick }: AtlasesProps) {
  const state = useViewState();
  const own = useMemo(() => ({ asked: state.param("atlases"), by: state.param("by", "stat:entropy") }), [state]);
  const asked = own.asked.value !== "";
  const [a, b] = [useAtlas(source, asked ? first : null), useAtlas(source, asked ? second : null)];
  if (!asked) {
    return (
      <section aria-label="The two atlases">
        <button type="button" data-testid="compare-atlases" onClick={() => (own.asked.value = "1")}>
          Compare what heads do (makes both atlases)
        </button>
      </section>
    );
  }
  const failure = a.failure ?? b.failure;
  if (failure) return <Failure text={failure} />;
  if (!a.atlas || !b.atlas) {
    const job = a.atlas ? b.job : a.job;
    return (
      <Progress
        label="Looking at every head…"
        done={job?.done ?? 0}
        total={job?.total ?? 1}
        secondsLeft={job?.seconds_left ?? null}
        onCancel={job ? () => void source.cancelJob(job.id) : undefined}
      />
    );
  }
  return (
    <Statistics
      atlases={[a.atlas, b.atlas]}
      role={role}
      by={own.by.value}
      onBy={(by) => (own.by.value = by)}
      at={at}
      onPick={onPick}
    />
  );
}

interface StatisticsProps {
  atlases: readonly [Atlas, Atlas];
  role: string;
  by: string;
  onBy(by: string): void;
  at: HeadAt;
  onPick(at: HeadAt): void;
}

/** A head's value of what `by` names: "stat:NAME" or "kind:NAME"; null where it has none. */
export function valueIn(head: AtlasHead, by: string): number | null {
  const name = by.slice(5);
  const value = by.startsWith("kind:") ? head.kinds[name] : head.statistics[name];
  return typeof value === "number" ? value : null;
}

function Statistics({ atlases: [first, second], role, by, onBy, at, onPick }: StatisticsProps) {
  const [all, showAll] = useState(false);
  const there = new Map(second.heads.map((head) => [`${head.role} ${head.layer} ${head.head}`, head]));
  const pairs = first.heads.flatMap((head) => {
    const twin = there.get(`${head.role} ${head.layer} ${head.head}`);
    const [x, y] = [valueIn(head, by), twin ? valueIn(twin, by) : null];
    return head.role === role && x !== null && y !== null ? [{ layer: head.layer, head: head.head, x, y }] : [];
  });
  const moved = pairs.toSorted((p, q) => Math.abs(q.x - q.y) - Math.abs(p.x - p.y));
  const shown = moved.slice(0, all ? 64 : 8);
  return (
    <section class="compare-atlases" aria-label="The two atlases">
      <div>
        <h2>What heads do</h2>
        <label class="picker">
          <span class="picker-name">Compare by</span>
          <select
            aria-label="Compare by"
            value={by}
            data-testid="compare-by"
            onChange={(event) => onBy(event.currentTarget.value)}
          >
            <optgroup label="Statistic">
              {first.statistics.map((name) => (
                <option key={name} value={`stat:${name}`}>
                  {spoken(name)}
                </option>
              ))}
            </optgroup>
            <optgroup label="Score for a kind">
              {first.kinds.map((name) => (
                <option key={name} value={`kind:${name}`}>
                  {spoken(name)}
                </option>
              ))}
            </optgroup>
          </select>
        </label>
        <Scatter
          title={`${spoken(by.slice(5))} of every head`}
          xLabel="first"
          yLabel="second"
          diagonal
          dots={pairs.map(({ layer, head, x, y }) => ({
            x,
            y,
            name: `L${layer} H${head}: ${formatNumber(x)} → ${formatNumber(y)}`,
          }))}
          marked={pairs.findIndex(({ layer, head }) => layer === at.layer && head === at.head)}
        />
      </div>
      <div>
        <h3>Heads that moved most</h3>
        <table class="history-table" data-testid="moved">
          <thead>
            <tr>
              <th scope="col">head</th>
              <th scope="col">first</th>
              <th scope="col">second</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ layer, head, x, y }) => (
              <tr key={`${layer} ${head}`}>
                <th scope="row">
                  <button type="button" class="link" onClick={() => onPick({ layer, head })}>
                    L{layer} H{head}
                  </button>
                </th>
                <td>{formatNumber(x)}</td>
                <td>{formatNumber(y)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {!all && moved.length > shown.length && (
          <button type="button" onClick={() => showAll(true)}>
            More
          </button>
        )}
      </div>
    </section>
  );
}
