"""Numbers as JSON can represent them."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

__all__ = ["number", "numbers"]


def number(x: float) -> float | None:
    """A number; None for infinities and NaN, which JSON lacks.

    >>> number(0.5), number(-float("inf"))
    (0.5, None)
    """
    return x if math.isfinite(x) else None


def numbers(x: Tensor | list[Any] | float) -> Any:
    """The same for a tensor or nested lists of numbers."""
    if isinstance(x, Tensor):
        x = x.tolist()
    return [numbers(part) for part in x] if isinstance(x, list) else number(float(x))
