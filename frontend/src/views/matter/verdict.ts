/** What a knock-out showed, in one honest sentence. */

export interface Cut {
  /** What was blocked, as the subject of a sentence: "this edge". */
  what: string;
  /** The weight that was removed, where what was blocked has one. */
  weight: number | null;
  kl: number;
}

const LARGE = 0.2;
const SMALL = 0.05;

/** How much a KL divergence in nats is, in words that go after "the distribution". */
export function size(kl: number): "none" | "little" | "clear" | "strong" {
  if (kl < 0.01) return "none";
  if (kl < 0.1) return "little";
  return kl < 0.5 ? "clear" : "strong";
}

export function verdict({ what, weight, kl }: Cut): string {
  const removed = weight === null ? "" : ` (weight ${number(weight)})`;
  return `Cutting ${what}${removed} changed the next-token distribution by KL ${number(kl)} nats: ${meaning(weight, kl)}`;
}

function meaning(weight: number | null, kl: number): string {
  const effect = size(kl);
  const mattered = effect === "clear" || effect === "strong";
  if (weight !== null && weight >= LARGE) {
    if (mattered) return "the weight was large and it mattered here.";
    return effect === "little"
      ? "the weight was large and it mattered little."
      : "the weight was large and it did not matter.";
  }
  if (weight !== null && weight <= SMALL) {
    if (mattered) return "the weight was small and it mattered all the same.";
    return effect === "little"
      ? "the weight was small, yet something moved."
      : "the weight was small and it did not matter.";
  }
  return {
    none: "for this prediction it did not matter.",
    little: "it mattered a little for this prediction.",
    clear: "it mattered for this prediction.",
    strong: "this prediction leaned on it.",
  }[effect];
}

/** Three significant digits, without an exponent for the numbers people meet here. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return "∞";
  if (value === 0) return "0";
  if (Math.abs(value) < 0.0005) return "below 0.0005";
  return String(Number(value.toPrecision(value < 0.01 ? 1 : 2)));
}

export interface Share {
  token: string;
  probability: number | null;
  /** Different tokens may read the same. */
  id?: number;
}

export interface Pair {
  token: string;
  before: number | null;
  after: number | null;
}

/** The two lists side by side, heaviest first; null where a list was cut before the token. */
export function pairs(before: readonly Share[], after: readonly Share[], most = 8): Pair[] {
  const rows = new Map<string | number, Pair>();
  const row = ({ id, token }: Share): Pair => {
    const found = rows.get(id ?? token) ?? { token, before: null, after: null };
    rows.set(id ?? token, found);
    return found;
  };
  for (const one of before) row(one).before = one.probability;
  for (const one of after) row(one).after = one.probability;
  const heaviest = (pair: Pair) => Math.max(pair.before ?? 0, pair.after ?? 0);
  return [...rows.values()].sort((a, b) => heaviest(b) - heaviest(a)).slice(0, most);
}

/** Whether the first guess moved, as a sentence. */
export function firstGuess(before: readonly Share[], after: readonly Share[]): string {
  const [old, now] = [likeliest(before), likeliest(after)];
  if (!old || !now) return "";
  const same = (old.id ?? old.token) === (now.id ?? now.token);
  return same ? "The first guess stayed the same." : "The first guess changed.";
}

function likeliest(shares: readonly Share[]): Share | undefined {
  return shares.toSorted((a, b) => (b.probability ?? 0) - (a.probability ?? 0))[0];
}
