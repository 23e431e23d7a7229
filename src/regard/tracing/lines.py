"""The arithmetic of one cell, written out from the numbers of the previous step.

`Worker` prints these lines for one cell of each step of a trace; the viewer shows them for every cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.tracing.numerals import factor, short, value_of
from regard.tracing.sums import Left, Shares, equation

__all__ = ["AFTER", "Softmax", "biased", "capped", "masked", "modified", "scaled"]

# Larger scores are shifted by the row's maximum, as in every implementation: e^100 is not readable.
LARGE = 12.0
AFTER = "after subtracting"


def scaled(before: float, after: float, scale: float, root: int | None) -> str:
    """A score times the scale; `root` is d if the scale is 1/√d.

    >>> scaled(6.0, 3.0, 0.5, 4)
    '6 / √4 ≈ 3'
    """

    def left(digits: int) -> Left:
        if root:
            return f"{short(before, digits)} / √{root}", value_of(before, digits) / math.sqrt(root)
        by = value_of(scale, digits)
        return f"{short(before, digits)} × {factor(scale, digits)}", value_of(before, digits) * by

    return equation(left, after)


def biased(before: float, after: float) -> str:
    """A score and the bias of its pair."""

    def left(digits: int) -> Left:
        added = after - before
        text = f"{short(before, digits)} + {factor(added, digits)}"
        return text, value_of(before, digits) + value_of(added, digits)

    return equation(left, after)


def capped(before: float, after: float, cap: float) -> str:
    """A score squeezed between −cap and cap."""

    def left(digits: int) -> Left:
        c = value_of(cap, digits)
        text = f"{short(cap, digits)} × tanh({short(before, digits)} / {short(cap, digits)})"
        return text, c * math.tanh(value_of(before, digits) / c)

    return equation(left, after)


def modified(before: float, after: float) -> str:
    """A score that a user's function rewrote."""
    return f"{short(before)} becomes {short(after)}"


def masked(before: float, after: float) -> str:
    """A score under the mask; bias and soft cap may have changed it where a page has no step for them.

    >>> masked(1.5, -math.inf), masked(1.5, 1.5), masked(1.5, 1.25)
    ('hidden: the score becomes −∞', 'allowed: the score stays 1.5', 'allowed: 1.5 becomes 1.25')
    """
    if after == -math.inf:
        return "hidden: the score becomes −∞"
    if short(before) == short(after):
        return f"allowed: the score stays {short(after)}"
    return f"allowed: {modified(before, after)}"


class Softmax:
    """The softmax of one row of scores: each weight written out.

    `sink` is a logit that takes part and has no value.

    >>> Softmax([1.0, 0.0, -math.inf]).line(0, 0.7311)
    'e^1 / (e^1 + e^0) ≈ 2.718 / 3.718 ≈ 0.731'
    """

    def __init__(self, scores: Sequence[float], sink: float | None = None) -> None:
        self._scores = scores
        seen = [s for s in (*scores, *(() if sink is None else (sink,))) if s > -math.inf]
        largest = max(seen, default=0.0)
        shift = largest if max(map(abs, seen), default=0.0) > LARGE else 0.0
        self._shift, self._shares = shift, Shares([s - shift for s in seen])

    def line(self, key: int, weight: float) -> str:
        """The weight of one key."""
        if self._scores[key] == -math.inf:
            return "e to the power of −∞ is 0: a weight of exactly 0"
        first = f"{AFTER} {short(self._shift)}: " if self._shift else ""
        return first + self._shares.of(self._scores[key] - self._shift, weight)
