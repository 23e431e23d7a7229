/** Numbers as a reader wants them: few digits, never a row of zeros. */

const MINUS = "−";
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** 10⁻⁵ from −5. */
export function raised(power: number): string {
  return `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((digit) => RAISED[Number(digit)]).join("")}`;
}

export function formatNumber(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) {
    const [front = "", power = "0"] = value.toExponential(Math.max(0, digits - 1)).split("e");
    return `${front.replace("-", MINUS)}·${raised(Number(power))}`;
  }
  return String(Number(value.toPrecision(digits))).replace("-", MINUS);
}

/** A weight between 0 and 1. */
export function formatWeight(weight: number | null | undefined): string {
  if (weight === null || weight === undefined || Number.isNaN(weight)) return "–";
  if (weight === 0) return "0";
  return weight >= 0.001 ? weight.toFixed(4) : formatNumber(weight, 3);
}

export function formatPercent(share: number): string {
  const percent = share * 100;
  if (percent === 0) return "0 %";
  if (percent < 0.01) return "< 0.01 %";
  return `${percent >= 10 ? percent.toFixed(1) : percent.toPrecision(2)} %`;
}

/** 131,072: positions and counts. */
export function formatCount(count: number): string {
  return Math.round(count).toLocaleString("en-US").replace("-", MINUS);
}

/** 1 layer, 9 layers: of a noun that takes an s. */
export function formatNouns(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** 12.3k where there is little room. */
export function formatShort(count: number): string {
  if (Math.abs(count) < 10_000) return formatCount(count);
  if (Math.abs(count) < 1_000_000) return `${Number((count / 1000).toFixed(1))}k`;
  return `${Number((count / 1_000_000).toFixed(2))}M`;
}

export function formatSeconds(seconds: number): string {
  if (seconds < 1) return "under a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return `${Math.round(seconds / 60)} min`;
}
