import { Fragment } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useOpen } from "../../context";
import { useExporter } from "../../export/exporter";
import { useAtlas } from "../../parts/atlas";
import { brightest, scaleFor } from "../../parts/colour";
import { Failure } from "../../parts/failure";
import { formatNumber } from "../../parts/format";
import { kindColour, spoken } from "../../parts/kinds";
import { Legend } from "../../parts/legend";
import { Progress } from "../../parts/progress";
import type { Recording, Source } from "../../source/source";
import { useViewState, type ViewState } from "../../state";
import type { MaskShape } from "../map/geometry";
import { Controls } from "./Controls";
import { type Card, type Cards, readCards } from "./cards";
import { Details } from "./Details";
import { atlasExporter } from "./exporting";
import { type Choice, kindsOf, passes, reading, score, select } from "./select";
import { Thumb } from "./Thumb";
import "./atlas.css";

/** All heads at a glance: a picture of each, what kind it is, and what speaks for that. */
export function AtlasView({ source }: { source: Source }) {
  const { recording } = useOpen();
  const { atlas, job, failure } = useAtlas(source, recording.id);
  const cards = useMemo(() => (atlas ? readCards(atlas) : null), [atlas]);
  if (failure) return <Failure text={failure} />;
  if (!cards) {
    return (
      <div class="atlas-wait">
        {job ? (
          <Progress
            label={job.state === "waiting" ? "Waiting for other work…" : "Looking at every head…"}
            done={job.done}
            total={job.total}
            secondsLeft={job.seconds_left}
            onCancel={() => void source.cancelJob(job.id)}
          />
        ) : (
          <p role="status">Looking at every head…</p>
        )}
      </div>
    );
  }
  return <Shown source={source} atlas={cards} />;
}

function Shown({ source, atlas }: { source: Source; atlas: Cards }) {
  const state = useViewState();
  const { recording } = useOpen();
  const [choice, change] = useChoice(state);
  const { cards } = atlas;
  const stacks = recording.stacks.map(({ role }) => role).filter((role) => cards.some((card) => card.role === role));
  const chosen = select(cards, choice);
  const at = cards.find(
    (c) => c.role === state.role.value && c.layer === state.layer.value && c.head === state.head.value,
  );
  const [looked, look] = useLook();
  const shown = looked ?? at ?? chosen[0] ?? cards[0];
  const open = (card: Card): void =>
    state.go({ view: "map", role: card.role, layer: card.layer, head: card.head, x: null, y: null, z: null });
  const [all, setAll] = useState(false);
  useExporter(
    state,
    useMemo(() => atlasExporter(recording, cards, state, () => setAll(true)), [recording, cards, state]),
  );
  // The colours chosen on the map; left to us, one scale up to 1 for all heads, so that they can be compared.
  const bright = brightest(useMemo(() => state.param("bright"), [state]).value) ?? 1;
  const scale = scaleFor(
    Math.max(...recording.stacks.map((stack) => stack.keys)),
    state.palette.value,
    state.scale.value,
    bright,
  );
  const picture = (card: Card) => (
    <Picture
      key={`${card.role} ${card.layer} ${card.head}`}
      card={card}
      kinds={atlas.kinds}
      choice={choice}
      dim={!passes(card, choice)}
      chosen={card === shown}
      onLook={look}
      onOpen={source.kind === "static" ? look : open}
    >
      <Thumb
        source={source}
        map={{ rec: recording.id, role: card.role, layer: card.layer, head: card.head }}
        mask={maskOf(recording, card)}
        how={state.how.value}
        scale={scale}
        now={all}
      />
    </Picture>
  );
  return (
    <div class="atlas">
      <div class="atlas-main">
        <Controls cards={cards} kinds={atlas.kinds} statistics={atlas.statistics} choice={choice} onChange={change} />
        <p class="small soft" role="status" data-testid="atlas-count">
          {chosen.length} of {cards.length} heads. A kind is a pattern of weights, not a function: “Does it matter?”
          asks what a head is good for.
        </p>
        <Legend scale={scale} title="weight" />
        {choice.sort === "layer" ? (
          <Matrix stacks={stacks} cards={cards} picture={picture} />
        ) : (
          <div class="atlas-list" data-testid="atlas-list">
            {chosen.map(picture)}
          </div>
        )}
      </div>
      {shown && (
        <aside class="atlas-side">
          <Details
            key={`${shown.role} ${shown.layer} ${shown.head}`}
            source={source}
            rec={recording.id}
            card={shown}
            least={choice.least}
            stack={stacks.length > 1 ? shown.role : null}
            onOpen={() => open(shown)}
          />
        </aside>
      )}
    </div>
  );
}

/** The head under the pointer, once it rests there: passing over a head asks nothing of the server. */
function useLook(): [Card | null, (card: Card) => void] {
  const [looked, look] = useState<Card | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const soon = (card: Card): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => look(card), 120);
  };
  return [looked, soon];
}

function maskOf(recording: Recording, { role, layer }: Card): MaskShape {
  const stack = recording.stacks.find((one) => one.role === role);
  const { queries = 1, keys = 1, causal = false, windows = {} } = stack ?? {};
  return { queries, keys, causal, window: windows[layer] ?? null };
}

/** Layers down, heads across, stack by stack: what is filtered out stays in its place and fades. */
function Matrix({
  stacks,
  cards,
  picture,
}: {
  stacks: readonly string[];
  cards: readonly Card[];
  picture(card: Card): preact.VNode;
}) {
  const inOrder = cards.toSorted(reading);
  const rows = stacks.flatMap((role) => {
    const own = inOrder.filter((card) => card.role === role);
    const layers = [...new Set(own.map((card) => card.layer))];
    return layers.map((layer, i) => ({ role, layer, row: own.filter((card) => card.layer === layer), first: i === 0 }));
  });
  const wide = Math.max(...rows.map(({ row }) => row.length));
  return (
    <div class="atlas-scroll">
      <div
        class="atlas-matrix"
        style={{ "--wide": wide, "--least": `${leastSide(wide)}px` }}
        data-testid="atlas-matrix"
      >
        <div class="atlas-row atlas-heads" aria-hidden="true">
          <span class="atlas-layer">head</span>
          {Array.from({ length: wide }, (_, head) => (
            <span key={head}>{head}</span>
          ))}
        </div>
        {rows.map(({ role, layer, row, first }) => (
          <Fragment key={`${role} ${layer}`}>
            {first && stacks.length > 1 && <h3 class="atlas-stack">{role}</h3>}
            <div
              class="atlas-row"
              role="group"
              aria-label={stacks.length > 1 ? `${role}, layer ${layer}` : `Layer ${layer}`}
            >
              <span class="atlas-layer">{layer}</span>
              {row.map(picture)}
            </div>
          </Fragment>
        ))}
      </div>
    </div>
  );
}

/** Pixels that a picture needs at least: of many heads a row still fits a wide screen. */
function leastSide(heads: number): number {
  return heads <= 16 ? 40 : heads <= 40 ? 24 : 14;
}

interface PictureProps {
  card: Card;
  kinds: readonly string[];
  choice: Choice;
  dim: boolean;
  chosen: boolean;
  onLook(card: Card): void;
  onOpen(card: Card): void;
  children: preact.ComponentChildren;
}

function Picture({ card, kinds, choice, dim, chosen, onLook, onOpen, children }: PictureProps) {
  const found = kindsOf(card, choice.least);
  const touch = useRef(false);
  // A finger cannot hover: its first tap looks, its second opens.
  const click = (): void => (touch.current && !chosen ? onLook(card) : onOpen(card));
  const what = found.length ? found.map(spoken).join(", ") : "no kind";
  return (
    <button
      type="button"
      class={`head${dim ? " head-dim" : ""}${chosen ? " head-chosen" : ""}`}
      data-testid={`head-${card.layer}-${card.head}`}
      data-passes={!dim}
      aria-label={`Layer ${card.layer}, head ${card.head}: ${what}. Open in Map.`}
      title={`Layer ${card.layer}, head ${card.head}: ${what}\n${glance(card)}`}
      onPointerDown={(event) => (touch.current = event.pointerType === "touch")}
      onPointerEnter={(event) => event.pointerType === "mouse" && onLook(card)}
      onFocus={() => !touch.current && onLook(card)}
      onClick={click}
    >
      {children}
      <span class="head-marks" aria-hidden="true">
        {found.slice(0, 4).map((kind) => (
          <i key={kind} style={{ background: kindColour(kinds, kind) }} />
        ))}
      </span>
      <span class="head-name">
        {choice.sort === "layer" ? "" : `L${card.layer} · H${card.head}`}
        {note(card, choice)}
      </span>
    </button>
  );
}

/** The numbers that tell most, for a tooltip. */
function glance({ statistics }: Card): string {
  return ["entropy", "top_weight", "sink_mass", "mean_distance"]
    .filter((name) => name in statistics)
    .map((name) => `${spoken(name)} ${formatNumber(statistics[name])}`)
    .join("\n");
}

/** The number that the order goes by. */
function note(card: Card, { sort }: Choice): preact.VNode | null {
  if (sort === "layer") return null;
  const value = sort.startsWith("kind:") ? score(card, sort.slice(5)) : card.statistics[sort.slice(5)];
  return <b>{formatNumber(value, 2)}</b>;
}

/** The reader's choice, kept in the address. */
function useChoice(state: ViewState): [Choice, (changes: Partial<Choice>) => void] {
  const own = useMemo(
    () => ({
      kind: state.param("kind"),
      least: state.param("least"),
      stat: state.param("stat"),
      above: state.param("above"),
      sort: state.param("sort", "layer"),
    }),
    [state],
  );
  const choice: Choice = {
    kind: own.kind.value || null,
    least: Number(own.least.value) || null,
    stat: own.stat.value || null,
    above: own.above.value === "" ? null : Number(own.above.value),
    sort: own.sort.value,
  };
  const change = (changes: Partial<Choice>): void => {
    for (const [name, value] of Object.entries(changes)) {
      if (name in own) own[name as keyof typeof own].value = value === null ? "" : String(value);
    }
  };
  return [choice, change];
}
