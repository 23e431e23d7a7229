"""Checks arithmetic that an example writes out, such as e^2 / 11.2 = 0.659."""

from __future__ import annotations

import re

from regard.checking.equations import Equation, equations_in
from regard.checking.verdict import Cell, CheckedStep, Verdict

__all__ = ["checked_calculations"]

POSSIBLE = "possible only if the numbers on its left are rounded; as printed they give another number"
WRONG = "the right side does not follow from the left"


def checked_calculations(text: str) -> CheckedStep | None:
    """The verdicts about the calculations in a text, one row each; None if there are none.

    >>> step = checked_calculations("0.401×10 + 0.198×0 + 0.401×5 = 6.017, and 3×0.5 = 1.5")
    >>> [(cell.printed.text, cell.verdict.value, cell.right) for cell in step]
    [('6.017', 'rounded', '6.015'), ('1.5', 'right', '1.5')]
    """
    # The dash of a list is no minus.
    found = equations_in(re.sub(r"(?m)^[ \t]*[-*•][ \t]+", "", text))
    if not found:
        return None
    cells = tuple((_cell(row, each),) for row, each in enumerate(found))
    return CheckedStep("calculations", "calculations", cells, tuple(each.left.strip() for each in found))


def _cell(row: int, found: Equation) -> Cell:
    if found.holds:
        return Cell(row, 0, found.printed, Verdict.RIGHT, found.value)
    rounded = found.possible
    verdict, cause = (Verdict.ROUNDED, POSSIBLE) if rounded else (Verdict.WRONG, WRONG)
    return Cell(row, 0, found.printed, verdict, found.value, cause)
