import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { Recording, Stack } from "./source/source";
import type { TokenTable } from "./parts/tokens";

/** The recording that the reader has open, with its tokens; views under the shell may count on it. */
export interface Open {
  recording: Recording;
  tokens: TokenTable;
  /** The stack of layers chosen; the first where the address names none. */
  stack: Stack;
}

const OpenContext = createContext<Open | null>(null);
export const OpenProvider = OpenContext.Provider;

export function useOpen(): Open {
  const open = useContext(OpenContext);
  if (!open) throw new Error("useOpen needs an open recording above it.");
  return open;
}
