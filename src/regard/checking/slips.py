"""Slips in single cells: swapped cells or digits, a wrong sign, a shifted decimal point, truncation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.checking.arithmetic import Matrix
from regard.checking.numeral import Numeral, numeral

__all__ = ["CUT_OFF", "Place", "divided", "slip", "swapped"]

CUT_OFF = "truncated instead of rounded: the further digits were cut off"
# Whole numbers to try as divisors of scores.
LARGEST_DIVISOR = 100


@dataclass(frozen=True)
class Place:
    """One wrong cell."""

    row: int
    column: int
    printed: Numeral
    exact: float


def swapped(places: Sequence[Place]) -> dict[tuple[int, int], str]:
    """Pairs of cells with exchanged numbers, if the two numbers clearly differ."""
    found: dict[tuple[int, int], str] = {}
    for i, a in enumerate(places):
        for b in places[i + 1 :]:
            if (a.row, a.column) in found or (b.row, b.column) in found or a.printed.value == b.printed.value:
                continue
            if a.printed.shows(b.exact) and b.printed.shows(a.exact):
                both = f"{a.printed.text} and {b.printed.text}"
                cause = f"two cells are swapped: {both} belong in each other's place"
                found[a.row, a.column] = found[b.row, b.column] = cause
    return found


def divided(places: Sequence[Place], scores: Matrix, right: str) -> dict[tuple[int, int], str]:
    """Scaled scores that equal the scores divided by one wrong whole number."""
    for by in range(2, LARGEST_DIVISOR + 1):
        hits = [p for p in places if scores[p.row][p.column] and _is(p.printed, scores[p.row][p.column] / by)]
        if len(hits) > 1:
            return {(p.row, p.column): f"divided by {by}; the others are {right}" for p in hits}
    return {}


def _is(printed: Numeral, exact: float) -> bool:
    return abs(printed.value - exact) <= 1e-9 * max(1.0, abs(exact))


def slip(place: Place) -> str:
    """The slip that turns the right number into the printed one; empty if there is none.

    >>> from regard.checking.numeral import numeral
    >>> slip(Place(0, 0, numeral("0.325"), 0.3521)), slip(Place(0, 0, numeral("1.5"), 0.1502))
    ('two digits are swapped: 0.352', 'the decimal point slipped by one place')
    """
    printed, exact = place.printed, place.exact
    if not math.isfinite(exact) or not math.isfinite(printed.value):
        return ""
    right = printed.right(exact)
    if printed.value and printed.shows(-exact) and not printed.shows(0.0):
        return "the sign is wrong"
    text = printed.text
    if len(text) == len(right) and _one_swap(text, right):
        return f"two digits are swapped: {right}"
    for factor, words in (
        (10.0, "one place"),
        (0.1, "one place"),
        (100.0, "two places"),
        (0.01, "two places"),
    ):
        if abs(exact) > 2 * printed.half and printed.value and printed.shows(exact * factor):
            return f"the decimal point slipped by {words}"
    if printed.truncates(exact) and not printed.whole:
        return CUT_OFF
    if len(text) == len(right) and _one_other(text, right):
        return f"one digit is wrong: {right}"
    off = round(abs(printed.value - numeral(right).value) / (2 * printed.half)) if printed.half else 0
    return "one off in its last digit" if off == 1 else ""


def _one_swap(a: str, b: str) -> bool:
    different = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(different) != 2:
        return False
    i, j = different
    return j == i + 1 and a[i] == b[j] and a[j] == b[i] and a[i].isdigit() and a[j].isdigit()


def _one_other(a: str, b: str) -> bool:
    """Whether one digit differs, of three or more; not the last, which rounding changes."""
    different = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    digits = re.sub(r"\D", "", b.partition("e")[0]).lstrip("0")
    return (
        len(digits) >= 3 and len(different) == 1 and different[0] < len(a) - 1 and a[different[0]].isdigit()
    )
