"""Formats numbers for worked examples."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

__all__ = ["cells", "factor", "short", "significant", "value_of"]


def short(x: float, digits: int = 3) -> str:
    """A number with at most `digits` decimals, and a real minus sign.

    >>> short(0.7071), short(-2.0), short(1.1254e-7), short(float("-inf")), short(123456.7)
    ('0.707', '−2', '1.1e−7', '−∞', '123457')
    """
    if not math.isfinite(x):
        return "nan" if math.isnan(x) else "∞" if x > 0 else "−∞"
    if x and (abs(x) < 0.5 * 10.0**-digits or abs(x) >= 1e7):
        mantissa, exponent = f"{x:.{digits - 2}e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    decimals = max(0, digits - 3) if abs(x) >= 1e4 else digits
    text = f"{x:.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")


def significant(x: float, digits: int) -> str:
    """A number with `digits` significant digits.

    >>> significant(135.6012, 4), significant(0.0123456, 4), significant(1e-9, 4)
    ('135.6', '0.01235', '1e−9')
    """
    text = f"{x:.{digits}g}"
    mantissa, e, exponent = text.partition("e")
    return (f"{mantissa}e{int(exponent)}" if e else text).replace("-", "−")


def value_of(x: float, digits: int = 3) -> float:
    """The value of the number that `short` prints.

    >>> value_of(0.40112), value_of(0.40112, 4)
    (0.401, 0.4011)
    """
    shown = short(x, digits)
    return float(shown.replace("−", "-").replace("∞", "inf"))


def factor(x: float, digits: int = 3) -> str:
    """A number as a factor of a product: in brackets if it is negative.

    >>> factor(-0.3)
    '(−0.3)'
    """
    return f"({short(x, digits)})" if x < 0 else short(x, digits)


def cells(values: Float[Tensor, "rows columns"]) -> list[list[str]]:
    """Format a table with equal decimals: none if all numbers are whole, else three.

    Rounding errors next to much larger numbers are shown as zero; small numbers keep their first digit.

    >>> import torch
    >>> cells(torch.tensor([[1.0, 0.5, -1e-20]])), cells(torch.tensor([[10.0, 0.0]]))
    ([['1.000', '0.500', '0.000']], [['10', '0']])
    """
    finite = values[values.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    noise = 1e-14 * largest
    whole = largest < 1e6 and bool((finite == finite.round()).all())
    return [[_cell(0.0 if abs(x) <= noise else x, whole) for x in row] for row in values.tolist()]


def _cell(x: float, whole: bool) -> str:
    if not math.isfinite(x) or (x and (abs(x) < 0.0005 or abs(x) >= 1e6)):
        return short(x)
    return (f"{x:.0f}" if whole else f"{x:.3f}").replace("-", "−")
