/** Questions prepared for whoever opens a text: each leads to the view, the head and the token that answer it. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Open } from "../context";
import type { Questions as Found, Source } from "../source/source";
import { useViewState, type View, type ViewState } from "../state";
import { useAnswer } from "./answer";
import { formatCount, formatPercent } from "./format";
import { closeOutside } from "./menu";
import { visible } from "./tokens";
import { type Pieces, wordAt, wordStarts } from "./words";
import "./questions.css";

export interface Question {
  id: string;
  asked: string;
  answer: string;
  view: View;
  /** What the address says there; a name that is left out has no value there. */
  at: Readonly<Record<string, string | number>>;
}

/** Closer than this, single cells are seen: log2 of the pixels of a cell. */
const CLOSE = 4.5;

/** What the server found, in words, with the places where it is seen. */
export function questionsOf(found: Found, tokens: Pieces & { label(i: number): string }, live: boolean): Question[] {
  const starts = wordStarts(tokens);
  const next = (i: number): string => (i + 1 < tokens.count ? `“${tokens.label(i + 1)}”` : "the same");
  const word = (i: number): string => visible(wordAt(tokens, starts, starts[i] ?? i));
  const asked: Question[] = [];
  const { returning, farthest } = found;
  const first = returning?.finders[0];
  if (returning && first) {
    const { query, key, gap, finders } = returning;
    const head = { layer: first.layer, head: first.head };
    asked.push({
      id: "returns",
      asked: `Where does “${returning.word}” come back?`,
      answer: `At token ${formatCount(query)}, ${formatCount(gap)} tokens after it was last mentioned. The strip beside the text shows where this head looks.`,
      view: "text",
      at: { ...head, query },
    });
    asked.push({
      id: "finder",
      asked: "Which head finds the earlier mentions?",
      answer: `Layer ${first.layer}, head ${first.head}: ${formatPercent(first.weight)} of its weight is on them.`,
      view: "token",
      at: { ...head, query, key },
    });
    const cuts = finders.map((one) => `${one.layer}.${one.head}`).join(" ");
    const several = finders.length > 1;
    if (live)
      asked.push({
        id: "without",
        asked: several
          ? `What happens without the ${finders.length} heads that find them?`
          : "What happens without it?",
        answer: `Block ${several ? "them" : "it"}, and see whether the model still expects ${next(query)} after “${tokens.label(query)}”.`,
        view: "matter",
        at: { ...head, query, block: several ? "several" : "head", ...(several ? { cuts } : {}) },
      });
  }
  if (farthest) {
    const { layer, head, query, key, weight, distance } = farthest;
    asked.push({
      id: "farthest",
      asked: "How far back does a word look?",
      answer: `“${word(query)}” at ${formatCount(query)} puts ${formatPercent(weight)} of its weight on “${word(key)}”, ${formatCount(distance)} tokens before.`,
      view: "map",
      at: { layer, head, query, key, x: key + 0.5, y: query + 0.5, z: CLOSE },
    });
  }
  return asked;
}

/** What belongs to one question and not to the next. */
const OWN = ["query", "key", "x", "y", "z", "look", "side", "show", "heads", "box", "mark", "beside"];
const CUTS = ["block", "cuts", "at", "instead"];

/** The address of an answer: colours and the like stay as the reader has set them. */
export function addressOf({ view, at }: Question, state: ViewState): string {
  const query = new URLSearchParams(state.hash().split("?", 2)[1] ?? "");
  for (const name of [...OWN, ...CUTS]) query.delete(name);
  for (const [name, value] of Object.entries(at)) query.set(name, String(value));
  return `#/${view}?${query}`;
}

interface QuestionsProps {
  source: Source;
  open: Open;
  /** Lets the model read the whole book, where that is possible and not done yet. */
  onBook: (() => void) | null;
}

export function Questions({ source, open, onBook }: QuestionsProps) {
  const state = useViewState();
  const menu = useRef<HTMLDetailsElement>(null);
  const [wanted, want] = useState(false);
  useEffect(() => closeOutside(menu), []);
  const { id: rec, live } = open.recording;
  const { role } = open.stack;
  const { value, failure } = useAnswer(wanted ? (signal) => source.questions(rec, role, signal) : null, [
    source,
    rec,
    role,
    wanted,
  ]);
  const asked = value && questionsOf(value, open.tokens, live);
  return (
    <details
      class="menu questions"
      ref={menu}
      data-testid="questions"
      onToggle={(event) => event.currentTarget.open && want(true)}
    >
      <summary>Questions to ask</summary>
      <nav class="menu-sheet" aria-label="Questions to ask of this text">
        {asked?.map((one) => (
          <a
            key={one.id}
            class="question"
            href={addressOf(one, state)}
            data-testid={`question-${one.id}`}
            onClick={() => {
              if (menu.current) menu.current.open = false;
            }}
          >
            <b>{one.asked}</b>
            <span>{one.answer}</span>
          </a>
        ))}
        {onBook && (
          <button
            type="button"
            data-testid="question-book"
            onClick={() => {
              if (menu.current) menu.current.open = false;
              onBook();
            }}
          >
            <b>Ask a whole book instead</b>
            <span>
              The model reads Alice’s Adventures in Wonderland, 40,000 tokens: a minute or two, once. Go on meanwhile.
            </span>
          </button>
        )}
        <p class="small soft" role="status">
          {failure ?? (asked ? asked.length === 0 && "No word of this text comes back." : "Looking through the text…")}
        </p>
      </nav>
    </details>
  );
}
