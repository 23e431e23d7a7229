"""95 % confidence intervals of shares and means over documents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Mean", "Share", "Z"]

# The normal quantile of 97.5 %.
Z = 1.959964


@dataclass(frozen=True)
class Share:
    """The share of documents in which something was found, with Wilson's interval.

    Wilson's interval stays within 0 and 1, and is accurate for few documents and for shares near 0
    (E. B. Wilson, 1927).

    >>> share = Share(8, 10)
    >>> share.value, round(share.low, 3), round(share.high, 3)
    (0.8, 0.49, 0.943)
    """

    found: int
    documents: int

    @property
    def value(self) -> float | None:
        """The share; None without documents."""
        return self.found / self.documents if self.documents else None

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self._ends[0]

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self._ends[1]

    @property
    def _ends(self) -> tuple[float, float]:
        n = self.documents
        if not n:
            return 0.0, 1.0
        p, square = self.found / n, Z * Z
        middle = (p + square / (2 * n)) / (1 + square / n)
        half = Z / (1 + square / n) * math.sqrt(p * (1 - p) / n + square / (4 * n * n))
        # Because of rounding, clamp the ends so that the share lies between them.
        return max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half))

    def to_dict(self) -> dict[str, Any]:
        """The share as plain data."""
        return {
            "found": self.found,
            "documents": self.documents,
            "share": self.value,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True)
class Mean:
    """The mean over documents, with the normal interval: mean ± 1.96 s / √n.

    >>> mean = Mean.of(3, 6.0, 14.0)
    >>> mean.value, mean.deviation, round(mean.half_width, 3)
    (2.0, 1.0, 1.132)
    """

    documents: int
    value: float | None
    deviation: float | None

    @staticmethod
    def of(documents: int, total: float, squares: float) -> Mean:
        """From the number of documents, their sum and the sum of their squares."""
        if not documents:
            return Mean(0, None, None)
        mean = total / documents
        if documents < 2:
            return Mean(documents, mean, None)
        variance = max(0.0, (squares - documents * mean * mean) / (documents - 1))
        return Mean(documents, mean, math.sqrt(variance))

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None for fewer than two documents."""
        return None if self.deviation is None else Z * self.deviation / math.sqrt(self.documents)

    def to_dict(self) -> dict[str, Any]:
        """The mean as plain data."""
        half = self.half_width
        ends = (None, None) if half is None or self.value is None else (self.value - half, self.value + half)
        return {
            "documents": self.documents,
            "mean": self.value,
            "deviation": self.deviation,
            "low": ends[0],
            "high": ends[1],
        }
