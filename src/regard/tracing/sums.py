"""Writes out arithmetic so that the printed right side follows by hand from the printed left side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from regard.tracing.numerals import factor, short, significant, value_of

__all__ = ["TERMS", "Left", "Shares", "dot", "equation"]

# Numbers of decimals to try until the printed numbers give the printed result.
DIGITS = range(3, 9)
TERMS = 6
UNROUNDED = ", from unrounded factors"
Left = tuple[str, float]


def equation(left: Callable[[int], Left], result: float, *, exact: bool = False) -> str:
    """The left side with as few decimals as give the printed result, and that result.

    `left(digits)` returns the text with that many decimals, and the value of the printed numbers.

    >>> equation(lambda digits: (f"{short(2 / 3, digits)}×100", 100 * value_of(2 / 3, digits)), 200 / 3)
    '0.66667×100 ≈ 66.667'
    """
    right, sign = short(result), "=" if exact else "≈"
    for digits in DIGITS:
        text, value = left(digits)
        if _rounds_to(value, right):
            return f"{text} {sign} {right}"
    return f"{left(DIGITS[0])[0]} {sign} {right}{UNROUNDED}"


def dot(a: Sequence[float], b: Sequence[float], result: float, extra: float = 0.0) -> str:
    """a · b as a sum of products; of many products, the largest. `extra` is added.

    >>> dot([0.40111, 0.19778, 0.40111], [10, 0, 5], 6.01665)
    '0.40111×10 + 0.19778×0 + 0.40111×5 ≈ 6.017'
    """
    products = [x * y for x, y in zip(a, b, strict=True)]
    order = sorted(range(len(products)), key=lambda i: -abs(products[i]))
    kept = sorted(order[: TERMS - 1]) if len(order) > TERMS else sorted(order)
    rest = math.fsum(products[i] for i in order if i not in kept)

    def left(digits: int) -> Left:
        terms = [f"{factor(a[i], digits)}×{factor(b[i], digits)}" for i in kept]
        value = math.fsum(value_of(a[i], digits) * value_of(b[i], digits) for i in kept)
        if len(kept) < len(products):
            terms.append(f"({len(products) - len(kept)} more: {short(rest, digits)})")
            value += value_of(rest, digits)
        if extra:
            terms.append(factor(extra, digits))
            value += value_of(extra, digits)
        return " + ".join(terms), value

    exact = all(float(x).is_integer() for x in (*a, *b)) and not extra and len(kept) == len(products)
    return equation(left, result, exact=exact)


class Shares:
    """The softmax of one score among others, e^a / (e^a + e^b), in steps that can be checked by hand.

    >>> Shares([1.0, 0.0]).of(1.0, 0.731059)
    'e^1 / (e^1 + e^0) ≈ 2.718 / 3.718 ≈ 0.731'
    """

    def __init__(self, seen: Sequence[float]) -> None:
        # Computed once per row, for all of its cells.
        self._total = math.fsum(math.exp(s) for s in seen)
        order = sorted(range(len(seen)), key=lambda i: -seen[i])
        kept = sorted(order[: TERMS - 1]) if len(order) > TERMS else sorted(order)
        self._kept = [seen[i] for i in kept]
        self._more = len(seen) - len(kept)
        self._rest = math.fsum(math.exp(seen[i]) for i in order[len(kept) :])

    def of(self, mine: float, result: float) -> str:
        """One of the scores, and its share."""
        top, ratio = math.exp(mine), ""
        for digits in DIGITS:
            powers = [f"e^{factor(s, digits)}" for s in self._kept]
            sum_by_hand = math.fsum(math.exp(value_of(s, digits)) for s in self._kept)
            if self._more:
                powers.append(f"({self._more} more: {short(self._rest, digits)})")
                sum_by_hand += value_of(self._rest, digits)
            # One digit less than the exponents have: an exponent's last digit moves that of its power.
            over, under = (significant(x, max(4, digits - 1)) for x in (top, self._total))
            ratio = f"e^{factor(mine, digits)} / ({' + '.join(powers)}) ≈ {over} / {under} ≈ {short(result)}"
            parts = _number(over) / _number(under)
            shown = _shows(over, math.exp(value_of(mine, digits))) and _shows(under, sum_by_hand)
            if shown and _rounds_to(parts, short(result)):
                return ratio
        return f"{ratio}{UNROUNDED}"


def _shows(printed: str, by_hand: float) -> bool:
    """Whether a number computed by hand is the printed one, at the digits that it has."""
    mantissa, _, power = printed.replace("−", "-").partition("e")
    half = 0.5 * 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return abs(by_hand - _number(printed)) <= 1.001 * half


def _rounds_to(value: float, right: str) -> bool:
    """Whether a value computed by hand rounds to the printed result, and is not just at a half."""
    mantissa, e, power = right.replace("−", "-").partition("e")
    if e:
        half = 0.5 * 10.0 ** (int(power) - len(mantissa.partition(".")[2]))
    else:
        half = 0.5 if abs(_number(right)) >= 1e4 else 0.0005
    return abs(value - _number(right)) < 0.99999 * half


def _number(text: str) -> float:
    return float(text.replace("−", "-"))
