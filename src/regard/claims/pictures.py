"""The data of a claim's figure; `figures` draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Bars", "Curves", "Grid", "Picture"]

Line = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Curves:
    """Lines by name, each (x, y). `log` names the logarithmic axes: "", "x", "y" or "xy"."""

    lines: Mapping[str, Line]
    x: str
    y: str
    log: str = ""
    dots: bool = False
    """Points without a connecting line."""


@dataclass(frozen=True)
class Bars:
    """A bar for each label; several series stand side by side."""

    labels: Sequence[str]
    series: Mapping[str, Sequence[float]]
    y: str
    x: str = ""
    level: float | None = None
    """The expected number, drawn as a dashed line."""


@dataclass(frozen=True)
class Grid:
    """A matrix, row by row: a map, or a number for each layer and head. Cells of −inf are struck out."""

    cells: Sequence[Sequence[float]]
    rows: str
    columns: str
    row_labels: Sequence[str] | None = None
    column_labels: Sequence[str] | None = None
    annotate: bool = False
    limit: float | None = None

    @classmethod
    def pair(
        cls,
        left: Sequence[Sequence[float]],
        right: Sequence[Sequence[float]],
        rows: str,
        columns: str,
        *,
        annotate: bool = False,
        limit: float | None = None,
    ) -> Grid:
        """Two matrices of one height side by side, with a column between them that is struck out."""
        cells = [[*a, -math.inf, *b] for a, b in zip(left, right, strict=True)]
        names = [*map(str, range(len(left[0]))), "", *map(str, range(len(right[0])))]
        return cls(cells, rows, columns, [str(i) for i in range(len(cells))], names, annotate, limit)


Picture = Curves | Bars | Grid
