"""The kind of head that spreads its weight evenly."""

from __future__ import annotations

from regard.atlas.kinds.finding import QUERIES, Kind, unfit
from regard.atlas.tally import Tally
from regard.cards import Finding

__all__ = ["UNIFORM"]

# The score from which the kind is found: at most a hundredth of the weight differs from an even spread.
# Random weights, whose scores vary by a fiftieth of a nat, exceed that.
BAR = 0.99


def _uniform(tally: Tally, kind: Kind) -> list[Finding]:
    """1 - √(½ mean KL(row ‖ even)). By Pinsker's inequality, at most the remainder would have to move."""
    choice = tally.flat.visible.expand(tally.heads, -1)
    found = []
    for head in range(tally.heads):
        rows = (choice[head] > 1) & (tally.mass[head] > 0)
        count = int(rows.sum())
        if count < QUERIES:
            found.append(unfit(kind, f"only {count} queries had a choice, and {QUERIES} are wanted"))
            continue
        mass = tally.mass[head, rows]
        # The entropy of a row whose sink logit took some weight, renormalised.
        entropy = tally.entropy[head, rows] / mass + mass.log()
        log_n = choice[head, rows].double().log()
        moved = float(((log_n - entropy).mean().clamp(min=0) / 2).sqrt())
        score = max(0.0, 1 - moved)
        share = float((entropy.exp() / choice[head, rows]).mean())
        words = f"its queries use {share:.0%} of the keys they may see, by entropy"
        found.append(Finding(kind.name, score, kind.bar, words, queries=count))
    return found


UNIFORM = Kind("uniform", _uniform, BAR)
