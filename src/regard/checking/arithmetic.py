"""Attention in plain Python: over numbers, and over ranges of rounded numbers.

An example has a few dozen numbers, so lists are fast enough, and the program starts without PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

__all__ = ["Exact", "Matrix", "Range", "Ranges", "transpose"]

Matrix = list[list[float]]
Range = tuple[float, float]


def transpose(a: Sequence[Sequence]) -> list[list]:
    """Rows become columns."""
    return [list(column) for column in zip(*a, strict=True)]


class Exact:
    """Operations on exact numbers.

    >>> Exact.product([[1, 2]], [[3], [4]]), Exact.softmax([[0.0, 0.0, -math.inf]])
    ([[11.0]], [[0.5, 0.5, 0.0]])
    """

    @staticmethod
    def product(a: Matrix, b: Matrix) -> Matrix:
        other = transpose(b)
        return [[math.fsum(x * y for x, y in zip(row, column, strict=True)) for column in other] for row in a]

    @staticmethod
    def times(a: Matrix, factor: float) -> Matrix:
        # A masked score stays masked, also with a scale of 0.
        return [[x if math.isinf(x) else x * factor for x in row] for row in a]

    @staticmethod
    def hidden(a: Matrix, allowed: list[list[bool]]) -> Matrix:
        return [
            [x if seen else -math.inf for x, seen in zip(row, line, strict=True)]
            for row, line in zip(a, allowed, strict=True)
        ]

    @staticmethod
    def exps(a: Matrix) -> Matrix:
        return [[_exp(x) for x in row] for row in a]

    @staticmethod
    def sums(a: Matrix) -> Matrix:
        return [[math.fsum(row)] for row in a]

    @staticmethod
    def softmax(a: Matrix) -> Matrix:
        return [_softmax(row) for row in a]

    @staticmethod
    def shares(a: Matrix) -> Matrix:
        """Each number divided by the sum of its row."""
        return [[x / total if (total := math.fsum(row)) else 0.0 for x in row] for row in a]


class Ranges:
    """The same operations on (low, high) ranges; a result contains every value for numbers within the
    ranges."""

    @staticmethod
    def product(a: list[list[Range]], b: list[list[Range]]) -> list[list[Range]]:
        other = transpose(b)
        return [[_dot(row, column) for column in other] for row in a]

    @staticmethod
    def times(a: list[list[Range]], factor: Range) -> list[list[Range]]:
        return [[x if math.isinf(x[0]) else _times(x, factor) for x in row] for row in a]

    @staticmethod
    def hidden(a: list[list[Range]], allowed: list[list[bool]]) -> list[list[Range]]:
        return [
            [x if seen else (-math.inf, -math.inf) for x, seen in zip(row, line, strict=True)]
            for row, line in zip(a, allowed, strict=True)
        ]

    @staticmethod
    def exps(a: list[list[Range]]) -> list[list[Range]]:
        return [[(_exp(low), _exp(high)) for low, high in row] for row in a]

    @staticmethod
    def sums(a: list[list[Range]]) -> list[list[Range]]:
        return [[(math.fsum(x[0] for x in row), math.fsum(x[1] for x in row))] for row in a]

    @staticmethod
    def softmax(a: list[list[Range]]) -> list[list[Range]]:
        """The lower end of a weight has its own score at the lower end and all others at the upper; and vice
        versa."""
        return [[_extremes(row, i, _softmax) for i in range(len(row))] for row in a]

    @staticmethod
    def shares(a: list[list[Range]]) -> list[list[Range]]:
        return [[_extremes(row, i, lambda x: Exact.shares([x])[0]) for i in range(len(row))] for row in a]


def _extremes(row: Sequence[Range], i: int, shares: Callable[[list[float]], list[float]]) -> Range:
    least = [low if j == i else high for j, (low, high) in enumerate(row)]
    most = [high if j == i else low for j, (low, high) in enumerate(row)]
    return shares(least)[i], shares(most)[i]


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _softmax(row: Sequence[float]) -> list[float]:
    top = max(row, default=0.0)
    if top == -math.inf:  # a row that may look at nothing
        return [0.0] * len(row)
    powers = [math.exp(x - top) for x in row]
    total = math.fsum(powers)
    return [x / total for x in powers]


def _times(a: Range, b: Range) -> Range:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _dot(row: Sequence[Range], column: Sequence[Range]) -> Range:
    terms = [_times(x, y) for x, y in zip(row, column, strict=True)]
    return math.fsum(t[0] for t in terms), math.fsum(t[1] for t in terms)
