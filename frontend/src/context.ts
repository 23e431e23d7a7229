import { createContext } from "preact";
import { useContext } from "preact/hooks";

import { TokenTable } from "./parts/tokens";
import type { Recording, Source, Stack } from "./source/source";

/** The recording that the reader has open, with its tokens; views under the shell may count on it. */
export interface Open {
  recording: Recording;
  /** The stack of layers chosen; the first where the address names none. */
  stack: Stack;
  /** Those of the keys. */
  tokens: TokenTable;
  /** Those of the queries; with a cache the first query is not the first token. */
  queryTokens: TokenTable;
  /** Whether no distance lies between queries and keys, as where a decoder looks at what an encoder read. */
  apart: boolean;
  /** Token of query 0 among those of the keys; 0 where they are apart. */
  shift: number;
}

/** The stack that the address names, with the tokens of both its sides. */
export async function openStack(source: Source, recording: Recording, role: string): Promise<Open> {
  const stack = recording.stacks.find((one) => one.role === role) ?? recording.stacks[0];
  if (!stack) throw new Error("Nothing was recorded. Run the model inside the watch block, and record again.");
  const apart = ["cross", "pooling", "predicting"].includes(stack.role);
  const shift = apart ? 0 : Math.max(0, stack.keys - stack.queries);
  const side = async (name: "queries" | "keys"): Promise<TokenTable> =>
    new TokenTable(await source.tokens(recording.id, stack.role, name));
  const [tokens, others] = await Promise.all([side("keys"), apart ? side("queries") : null]);
  return { recording, stack, tokens, queryTokens: others ?? tokens.from(shift), apart, shift };
}

const OpenContext = createContext<Open | null>(null);
export const OpenProvider = OpenContext.Provider;

export function useOpen(): Open {
  const open = useContext(OpenContext);
  if (!open) throw new Error("useOpen needs an open recording above it.");
  return open;
}
