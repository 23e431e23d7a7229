/** What each step is called and what it says, in one plain sentence. */

import { formatNouns } from "../../parts/format";
import type { StepName, Walk } from "./walk";

export interface Words {
  /** On the rail. */
  short: string;
  title: string;
  formula: string;
  sentence: string;
}

export function words(name: StepName, walk: Walk): Words {
  const root = isRoot(walk);
  const by = root
    ? `Dividing by √${walk.dim} ≈ ${Math.sqrt(walk.dim).toFixed(2)}`
    : `Multiplying by ${short(walk.scale)}`;
  const table: Record<StepName, Words> = {
    tokens: {
      short: "Tokens",
      title: "One token asks, others can answer",
      formula: "",
      sentence: `The token in orange is the query: it asks, and ${formatNouns(walk.visible, "token")} may answer.`,
    },
    projections: {
      short: "q, k, v",
      title: "Every token becomes three vectors",
      formula:
        walk.queries.length > 0
          ? "q = x W_q     k = x W_k     v = x W_v"
          : "q, k = x W_q, x W_k, then positions     v = x W_v",
      sentence: `The query says what a token is looking for, the key what it can be found by, the value what it hands over${made(walk)}.`,
    },
    scores: {
      short: "Scores",
      title: "How well does each key fit the query?",
      formula: "score = q · k",
      sentence: "Multiply query and key number by number and add up: vectors that point the same way score high.",
    },
    scaled: {
      short: "Scale",
      title: "Keep the scores small",
      formula: root ? `scaled = score / √${walk.dim}` : `scaled = score × ${short(walk.scale)}`,
      sentence: `${by} keeps long vectors from making scores so large that one key takes everything.`,
    },
    masked: {
      short: "Mask",
      title: "No looking where you may not",
      formula: "masked = scaled, or −∞ where not allowed",
      sentence: walk.keys.some((key) => !key.allowed)
        ? "What the query may not see, such as the tokens after it, gets a score of −∞ and will weigh exactly 0."
        : "This query may see every key, so nothing changes; an earlier one would find −∞ at all that comes after it.",
    },
    weights: {
      short: "Softmax",
      title: "Scores become shares of one whole",
      formula: "weight = e^score / sum of all e^score",
      sentence: "Softmax makes every score positive and the row add up to 1, so that it reads as shares of attention.",
    },
    mix: {
      short: "Mix",
      title: "Take a share of every value",
      formula: "output = sum of weight × v",
      sentence:
        "The output is the average of the values, each counted with its weight: this is what the token takes home.",
    },
    parallel: {
      short: "All tokens",
      title: "Every token does this at once",
      formula: root ? "weights = softmax(Q Kᵀ / √d)" : "weights = softmax(Q Kᵀ × scale)",
      sentence:
        "No token waits for another: all queries are rows of one matrix, and the one you followed is in orange.",
    },
    heads: {
      short: "Heads",
      title: "All heads, side by side",
      formula: "concat(head 0, head 1, …) W_o",
      sentence:
        "Each head of the layer did the same with its own q, k and v; laid end to end, their outputs are mixed once more.",
    },
    next: {
      short: "Next token",
      title: "What the model says next",
      formula: "probability = softmax(logits)",
      sentence:
        "After the last layer the vector is compared with every token the model knows: these are its best guesses.",
    },
  };
  return table[name];
}

/** What stands between the projections and the vectors of a model's head. */
function made(walk: Walk): string {
  if (walk.queries.length > 0) return "";
  const shared = walk.group > 1 ? `, and every ${walk.group} query heads share one k and one v` : "";
  return `; positions are in q and k already, where the model turns them in${shared}`;
}

/** Whether scores are divided by the root of the vectors' length, as nearly everywhere. */
export function isRoot(walk: Walk): boolean {
  return Math.abs(walk.scale * Math.sqrt(walk.dim) - 1) < 1e-6;
}

function short(value: number): string {
  return String(Number(value.toPrecision(3)));
}
