"""Numbers as sentences say them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import linear_regression

__all__ = ["listed", "number", "percent", "slope"]


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits that count, and no exponent where none is needed.

    >>> number(11.3137), number(0.000012345), number(1234567), number(-1e9), number(2.0)
    ('11.3', '1.23e-5', '1.23e6', '−1e9', '2')
    """
    if value == 0:
        return "0"
    if 1 <= abs(value) < 100_000 and float(value).is_integer():
        shown = f"{int(value):,}"
    else:
        mantissa, e, power = f"{value:.{digits}g}".partition("e")
        shown = f"{mantissa}e{int(power)}" if e else mantissa
    return f"−{shown[1:]}" if shown.startswith("-") else shown


def percent(share: float) -> str:
    """A share of one in percent, with a space that no line breaks at.

    >>> [percent(share).split() for share in (0.0662, 1, 0.00042)]
    [['6.6', '%'], ['100', '%'], ['0.042', '%']]
    """
    value = 100 * share
    shown = f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
    return f"{shown.removesuffix('.0')}\N{NO-BREAK SPACE}%"


def listed(parts: Iterable[str]) -> str:
    """Several things in a row, the last joined with `and`.

    >>> listed(["one", "two", "three"])
    'one, two and three'
    """
    every = list(parts)
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent p of y ∝ x^p: the slope of a line through the logarithms.

    >>> slope([1, 2, 4], [3, 12, 48])
    2.0
    """
    return linear_regression([math.log(value) for value in x], [math.log(value) for value in y]).slope
