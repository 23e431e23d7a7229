import { useMemo } from "preact/hooks";

import { type Answer, useAnswer } from "../../parts/answer";
import type { TokenTable } from "../../parts/tokens";
import { wordAt, wordStarts } from "../../parts/words";
import type { Source } from "../../source/source";
import type { TextModel } from "../text/model";

/** A word that was said: its first token, and when it begins. */
export interface Word {
  first: number;
  text: string;
  seconds: number;
}

/** What was said and when; `whyNot` where the model does not follow the sound. */
export interface Spoken {
  words: readonly Word[];
  whyNot: string | null;
}

/** Asked only where a decoder looks at a sound. */
export function useSpoken(source: Source, model: TextModel, asked: boolean): Answer<Spoken> {
  const { id } = model.open.recording;
  const answer = useAnswer(asked ? (signal) => source.said(id, signal) : null, [source, id, asked]);
  const { value } = answer;
  const spoken = useMemo(
    () =>
      value && {
        words: value.seconds ? wordsOf(model.open.queryTokens, value.seconds) : [],
        whyNot: value.why_not ?? null,
      },
    [value, model],
  );
  return { ...answer, value: spoken };
}

/** The query at which the model listens for a word: the token before it, which predicts it. */
export function listensAt({ first }: Word): number {
  return Math.max(0, first - 1);
}

/** Words with their times; instructions such as <|en|> are not said. */
export function wordsOf(tokens: Pick<TokenTable, "count" | "raw">, seconds: readonly number[]): Word[] {
  const starts = wordStarts(tokens);
  const found: Word[] = [];
  for (let i = 0; i < Math.min(tokens.count, seconds.length); i++) {
    if (starts[i] !== i) continue;
    const text = wordAt(tokens, starts, i).trim();
    if (/[\p{L}\p{N}]/u.test(text) && !/^<[^<>\s]*>$/.test(tokens.raw(i).trim()))
      found.push({ first: i, text, seconds: seconds[i]! });
  }
  return found;
}
