import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useOpen } from "../../context";
import { sentence } from "../../parts/answer";
import type { ColourScale } from "../../parts/colour";
import { formatNumber } from "../../parts/format";
import { kindColour, spoken } from "../../parts/kinds";
import { Progress } from "../../parts/progress";
import { type Atlas, isPending, type Job, type Recording, type Source } from "../../source/source";
import { useViewState, type ViewState } from "../../state";
import type { MaskShape } from "../map/geometry";
import { type Card, type Cards, readCards } from "./cards";
import { Controls } from "./Controls";
import { Details } from "./Details";
import { type Choice, kindsOf, passes, reading, score, select } from "./select";
import { Thumb } from "./Thumb";
import "./atlas.css";

/** All heads at a glance: a picture of each, what kind it is, and what speaks for that. */
export function AtlasView({ source }: { source: Source }) {
  const { recording } = useOpen();
  const { atlas, job, failure } = useAtlas(source, recording.id);
  const cards = useMemo(() => (atlas ? readCards(atlas) : null), [atlas]);
  if (failure) return <p class="notice failure" role="alert">{failure}</p>;
  if (!cards) {
    return (
      <div class="atlas-wait">
        {job ? <Progress label="Looking at every head…" done={job.done} total={job.total} secondsLeft={job.seconds_left} /> : <p role="status">Looking at every head…</p>}
      </div>
    );
  }
  return <Shown source={source} atlas={cards} />;
}

/** The atlas, once it is made; while it is being made, how far that is. */
function useAtlas(source: Source, rec: string): { atlas: Atlas | null; job: Job | null; failure: string | null } {
  const [atlas, setAtlas] = useState<Atlas | null>(null);
  const [job, setJob] = useState<Job | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  useEffect(() => {
    let stop = (): void => undefined;
    let current = true;
    const fail = (error: unknown): void => {
      if (current) setFailure(sentence(error));
    };
    const ask = async (): Promise<void> => {
      const answer = await source.atlas(rec);
      if (!current) return;
      if (!isPending(answer)) return setAtlas(answer);
      stop = source.watchJob(answer.job, (now) => {
        setJob(now);
        if (now.state === "done") ask().catch(fail);
        if (now.state === "failed" || now.state === "cancelled") fail(now.error ?? "The atlas was cancelled.");
      }, fail);
    };
    ask().catch(fail);
    return () => {
      current = false;
      stop();
    };
  }, [source, rec]);
  return { atlas, job, failure };
}

function Shown({ source, atlas }: { source: Source; atlas: Cards }) {
  const state = useViewState();
  const { recording } = useOpen();
  const [choice, change] = useChoice(state);
  const { cards } = atlas;
  const chosen = select(cards, choice);
  const at = cards.find((c) => c.role === state.role.value && c.layer === state.layer.value && c.head === state.head.value);
  const [looked, look] = useLook();
  const shown = looked ?? at ?? chosen[0] ?? cards[0];
  const open = (card: Card): void => state.go({ view: "map", role: card.role, layer: card.layer, head: card.head, x: null, y: null, z: null });
  const scale = scaleFor(state, Math.max(...recording.stacks.map((stack) => stack.keys)));
  const picture = (card: Card) => (
    <Picture
      key={`${card.role} ${card.layer} ${card.head}`} card={card} kinds={atlas.kinds} choice={choice}
      dim={!passes(card, choice)} chosen={card === shown} onLook={look} onOpen={open}
    >
      <Thumb source={source} map={{ rec: recording.id, role: card.role, layer: card.layer, head: card.head }} mask={maskOf(recording, card)} how={state.how.value} scale={scale} />
    </Picture>
  );
  return (
    <div class="atlas">
      <div class="atlas-main">
        <Controls cards={cards} kinds={atlas.kinds} statistics={atlas.statistics} choice={choice} onChange={change} />
        <p class="small soft" role="status" data-testid="atlas-count">
          {chosen.length} of {cards.length} heads. A kind is a pattern of weights, not a function: “Does it matter?” asks what a head is good for.
        </p>
        {choice.sort === "layer" ? <Matrix cards={cards} picture={picture} /> : <div class="atlas-list" data-testid="atlas-list">{chosen.map(picture)}</div>}
      </div>
      {shown && <aside class="atlas-side"><Details key={`${shown.role} ${shown.layer} ${shown.head}`} source={source} rec={recording.id} card={shown} least={choice.least} onOpen={() => open(shown)} /></aside>}
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

/** The map's own colours: a log scale reaches a decade below an even spread over all keys. */
function scaleFor({ palette, scale }: ViewState, keys: number): ColourScale {
  const low = scale.value === "log" ? Math.min(0.01, 10 ** (Math.floor(Math.log10(1 / keys)) - 1)) : 0;
  return { palette: palette.value, scale: scale.value, low, high: 1 };
}

function maskOf(recording: Recording, { role, layer }: Card): MaskShape {
  const stack = recording.stacks.find((one) => one.role === role);
  const { queries = 1, keys = 1, causal = false, windows = {} } = stack ?? {};
  return { queries, keys, causal, window: windows[layer] ?? null };
}

/** Layers down, heads across: what is filtered out stays in its place and fades. */
function Matrix({ cards, picture }: { cards: readonly Card[]; picture(card: Card): preact.VNode }) {
  const rows = new Map<string, Card[]>();
  for (const card of cards.toSorted(reading)) {
    const name = `${card.role} ${card.layer}`;
    rows.set(name, [...(rows.get(name) ?? []), card]);
  }
  const several = new Set(cards.map((card) => card.role)).size > 1;
  const wide = Math.max(...[...rows.values()].map((row) => row.length));
  return (
    <div class="atlas-scroll">
      <div class="atlas-matrix" style={{ "--wide": wide }} data-testid="atlas-matrix">
        {[...rows].map(([name, row]) => (
          <div key={name} class="atlas-row" role="group" aria-label={`Layer ${row[0]!.layer}`}>
            <span class="atlas-layer">{several ? name : row[0]!.layer}</span>
            {row.map(picture)}
          </div>
        ))}
      </div>
    </div>
  );
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
      type="button" class={`head${dim ? " head-dim" : ""}${chosen ? " head-chosen" : ""}`}
      data-testid={`head-${card.layer}-${card.head}`} data-passes={!dim}
      aria-label={`Layer ${card.layer}, head ${card.head}: ${what}. Open in Map.`}
      onPointerDown={(event) => (touch.current = event.pointerType === "touch")}
      onPointerEnter={(event) => event.pointerType === "mouse" && onLook(card)}
      onFocus={() => !touch.current && onLook(card)}
      onClick={click}
    >
      {children}
      <span class="head-marks" aria-hidden="true">
        {found.slice(0, 4).map((kind) => <i key={kind} style={{ background: kindColour(kinds, kind) }} />)}
      </span>
      <span class="head-name">{choice.sort === "layer" ? "" : `L${card.layer} · H${card.head}`}{note(card, choice)}</span>
    </button>
  );
}

/** The number that the order goes by. */
function note(card: Card, { sort }: Choice): preact.VNode | null {
  if (sort === "layer") return null;
  const value = sort.startsWith("kind:") ? score(card, sort.slice(5)) : card.statistics[sort.slice(5)];
  return <b>{formatNumber(value, 2)}</b>;
}

/** The reader's choice, kept in the address. */
function useChoice(state: ViewState): [Choice, (changes: Partial<Choice>) => void] {
  const own = useMemo(() => ({
    kind: state.param("kind"),
    least: state.param("least"),
    stat: state.param("stat"),
    above: state.param("above"),
    sort: state.param("sort", "layer"),
  }), [state]);
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
