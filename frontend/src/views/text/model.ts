import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";

import type { Open } from "../../context";
import { sentence } from "../../parts/answer";
import { startAt } from "../../parts/chooser";
import { Keyed, keyOf } from "../../parts/keyed";
import type { TokenTable } from "../../parts/tokens";
import { byWord, wordStarts } from "../../parts/words";
import type { Line, Source } from "../../source/source";
import { mapRef, type ViewState } from "../../state";
import { combine, heaviest, type Lit } from "./light";

export type Direction = "keys" | "queries";
export type Heads = "one" | "mean" | "max";

/** What the parts of the text view share: the chosen token, which way to look, and the weights that light the text. */
export class TextModel {
  readonly direction: Signal<string>;
  readonly heads: Signal<string>;
  readonly arcs: Signal<string>;
  /** The token under the pointer, shown in place of the chosen one while it is there. */
  readonly hover = signal<number | null>(null);
  /** Of the token shown, in this head; null until its own answer is there. */
  readonly weights: ReadonlySignal<Float32Array | null>;
  readonly failure: ReadonlySignal<string | null>;
  private readonly answered = new Keyed<Float32Array>();
  private readonly failed = new Keyed<string>();
  private readonly question: ReadonlySignal<string | null>;
  /** "on" where the pieces of a word count as one. */
  readonly words: Signal<string>;
  /** The first token of each token's word, in the text that lights up. */
  readonly starts: ReadonlySignal<Uint32Array>;
  /** What lights up: the weights, or those of whole words. */
  readonly light: ReadonlySignal<Float32Array | null>;
  readonly chosen: ReadonlySignal<number | null>;
  readonly shown: ReadonlySignal<number | null>;
  readonly top: ReadonlySignal<Lit[]>;
  constructor(
    readonly source: Source,
    readonly state: ViewState,
    readonly open: Open,
  ) {
    this.direction = state.param("look", "keys");
    this.heads = state.param("heads", "one");
    this.arcs = state.param("arcs", "off");
    this.words = state.param("words");
    this.chosen = computed(() => {
      // A view that lights nothing up explains nothing: without a choice, a token early in the text is shown.
      const { query, key } = state;
      const start = startAt(open.stack.queries);
      if (this.direction.value === "queries") return this.known(key.value ?? Math.min(start, open.stack.keys - 1));
      return this.known((query.value ?? start) + this.shift);
    });
    this.shown = computed(() => this.hover.value ?? this.chosen.value);
    this.question = computed(() => {
      const { rec, role, layer, head } = mapRef(state);
      const heads = this.heads.value;
      return this.shown.value === null
        ? null
        : keyOf(rec, role, layer, heads === "one" ? head : heads, this.direction.value, this.shown.value);
    });
    this.weights = computed(() => this.answered.get(this.question.value));
    this.failure = computed(() => this.failed.get(this.question.value));
    this.starts = computed(() => wordStarts(this.lit));
    this.light = computed(() => {
      const weights = this.weights.value;
      return weights && this.words.value === "on" ? byWord(weights, this.starts.value) : weights;
    });
    this.top = computed(() => {
      const light = this.light.value;
      if (!light) return [];
      // Of a word its first token stands for all.
      return heaviest(
        this.words.value === "on" ? light.map((w, i) => (this.starts.value[i] === i ? w : 0)) : light,
        12,
      );
    });
  }

  /** Token of query 0: with a cache the first tokens are keys only. */
  get shift(): number {
    return this.open.shift;
  }

  /** The text that a token is picked in, and the text that then lights up: one and the same, unless they are apart. */
  get picked(): TokenTable {
    return this.tokensOf(this.direction.value === "queries" ? "key" : "query");
  }

  get lit(): TokenTable {
    return this.tokensOf(this.direction.value === "queries" ? "query" : "key");
  }

  private tokensOf(side: "query" | "key"): TokenTable {
    const { apart, queryTokens, tokens } = this.open;
    return apart && side === "query" ? queryTokens : tokens;
  }

  /** A token that was chosen for the reader, unless it is not there: an exported page holds some. */
  private known(token: number): number | null {
    const { query, key } = this.state;
    const asked = this.direction.value === "queries" ? key.value : query.value;
    return asked !== null || this.offers(token) ? token : null;
  }

  /** Go on from a token that is lit: pick it; where it is of the other text, that is to look the other way. */
  follow(token: number): void {
    if (this.open.apart) this.direction.value = this.direction.peek() === "keys" ? "queries" : "keys";
    this.choose(token);
  }

  /** Whether the weights of a token can be had; an exported page holds those of the tokens that were on screen. */
  offers(token: number): boolean {
    const line: Line = this.direction.value === "queries" ? { key: token } : { query: Math.max(0, token - this.shift) };
    return this.source.offersWeights(mapRef(this.state), line, this.heads.value !== "one");
  }

  choose(token: number): void {
    if (!this.offers(token)) return;
    if (this.direction.peek() === "queries") this.state.key.value = Math.min(token, this.open.stack.keys - 1);
    else this.state.query.value = Math.min(this.open.stack.queries - 1, Math.max(0, token - this.shift));
  }

  /** Look the other way from the same token. */
  turn(direction: Direction): void {
    const token = this.chosen.peek();
    this.direction.value = direction;
    if (token !== null && !this.open.apart) this.choose(token);
  }

  /** Ask for the light of the token shown, one value per token of the text; the returned function forgets the question. */
  ask(): () => void {
    const token = this.shown.value;
    const question = this.question.value;
    const map = mapRef(this.state);
    const heads = this.heads.value;
    const back = this.direction.value === "queries";
    if (token === null || question === null || this.weights.peek()) return () => undefined;
    const line: Line = back ? { key: token } : { query: Math.max(0, token - this.shift) };
    const stop = new AbortController();
    const answer =
      heads === "one"
        ? this.source.weights(map, line, stop.signal)
        : this.source
            .layerWeights(map.rec, map.role, map.layer, line, stop.signal)
            .then((grid) => combine(grid, heads === "mean" ? "mean" : "max"));
    answer
      .then((weights) => {
        if (stop.signal.aborted) return;
        this.answered.set(question, back ? shifted(weights, this.shift) : weights);
      })
      .catch((error: unknown) => {
        if (!stop.signal.aborted) this.failed.set(question, sentence(error));
      });
    return () => stop.abort();
  }
}

/** Weights over queries as weights over tokens. */
function shifted(weights: Float32Array, by: number): Float32Array {
  if (by === 0) return weights;
  const out = new Float32Array(weights.length + by);
  out.set(weights, by);
  return out;
}
