/** How far a job is, how long it will take, and a way to stop it. */

import { formatSeconds } from "./format";
import "./charts.css";

export interface ProgressProps {
  label: string;
  done: number;
  total: number | null;
  secondsLeft: number | null;
  /** Seconds since it was asked for, of what has not begun. */
  waited?: number | undefined;
  onCancel?: (() => void) | undefined;
}

export function Progress({ label, done, total, secondsLeft, waited, onCancel }: ProgressProps) {
  const known = total !== null && total > 0;
  const share = known ? `${Math.floor((100 * done) / total)} %` : "";
  const left = secondsLeft === null ? "" : `${formatSeconds(secondsLeft)} left`;
  const time = waited === undefined ? left : `for ${formatSeconds(waited)}`;
  return (
    <div class="progress" data-testid="progress">
      <div class="progress-words">
        <span>{label}</span>
        <span class="progress-left">{[share, time].filter(Boolean).join(", ")}</span>
      </div>
      <progress aria-label={label} {...(known ? { value: done, max: total } : {})} />
      {onCancel && (
        <button type="button" data-testid="cancel" onClick={onCancel}>
          Cancel
        </button>
      )}
    </div>
  );
}
