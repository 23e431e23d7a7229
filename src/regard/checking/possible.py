"""Checks whether all cells of a row can come at once from numbers within the printed digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.checking.arithmetic import Range
from regard.checking.numeral import Numeral

__all__ = ["softmax_possible", "sums_to_one"]


def sums_to_one(row: Sequence[Numeral]) -> bool:
    """Whether numbers within the printed digits of a row of weights can add up to 1.

    >>> from regard.checking.numeral import numeral
    >>> [sums_to_one([numeral(t) for t in row]) for row in (("0.85", "0.10", "0.06"), ("0.8", "0.1"))]
    [True, True]
    >>> sums_to_one([numeral(t) for t in ("0.50", "0.20")])
    False
    """
    low, high = math.fsum(x.low for x in row), math.fsum(x.high for x in row)
    return low - 1e-9 <= 1 <= high + 1e-9


def softmax_possible(scores: Sequence[Range], weights: Sequence[Numeral]) -> bool:
    """Whether some scores within their ranges have a softmax that prints as these weights.

    A weight is e^(score − c) with one c per row. Each cell bounds c, and so does the sum of 1.
    """
    seen = [(s, w) for s, w in zip(scores, weights, strict=True) if s[1] > -math.inf]
    if any(w.high < 0 or (s[1] == -math.inf and w.value) for s, w in zip(scores, weights, strict=True)):
        return False
    if not seen:
        return True
    low = max(s[0] - math.log(w.high) if w.high > 0 else math.inf for s, w in seen)
    high = min(s[1] - math.log(w.low) if w.low > 0 else math.inf for s, w in seen)
    if low > high + 1e-9:
        return False

    def least(c: float) -> float:
        return math.fsum(max(w.low, 0.0, math.exp(s[0] - c)) for s, w in seen)

    def most(c: float) -> float:
        return math.fsum(min(w.high, math.exp(s[1] - c)) for s, w in seen)

    high = min(high, low + 1000)
    # Both sums decrease with c: check the lower sum at the upper end of c, and the upper sum at the lower
    # end.
    if least(high) > 1 + 1e-9 or most(low) < 1 - 1e-9:
        return False
    for _ in range(200):
        middle = (low + high) / 2
        if least(middle) > 1:
            low = middle
        else:
            high = middle
    return most(high) >= 1 - 1e-9
