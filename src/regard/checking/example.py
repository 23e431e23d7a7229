"""A printed example: tables of numerals by step, and the scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from regard.checking.arithmetic import Matrix, Range
from regard.checking.numeral import Numeral
from regard.errors import ShapeError

__all__ = ["Example", "Scale", "Table"]


@dataclass(frozen=True)
class Table:
    """One printed table. `flat` means printed as a flat list; `groups` are the keys that each cell sums over.

    >>> from regard.checking.numeral import numeral
    >>> Table.of([["0.40", "0.60"]]).values
    [[0.4, 0.6]]
    """

    cells: tuple[tuple[Numeral, ...], ...]
    flat: bool = False
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]], flat: bool = False) -> Table:
        from regard.checking.numeral import numeral

        return cls(tuple(tuple(numeral(t) for t in row) for row in texts), flat)

    @property
    def values(self) -> Matrix:
        return [[cell.value for cell in row] for row in self.cells]

    @property
    def ranges(self) -> list[list[Range]]:
        return [[(cell.low, cell.high) for cell in row] for row in self.cells]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.cells), len(self.cells[0])

    @property
    def decimals(self) -> int:
        """The most decimals that any of its numbers shows."""
        return max(cell.decimals for row in self.cells for cell in row)

    def upright(self) -> Table:
        """A plain list as one column."""
        return replace(self, cells=tuple((cell,) for cell in self.cells[0]), flat=False)

    def size(self) -> str:
        rows, columns = self.shape
        return f"{columns} numbers" if self.flat else f"{rows} × {columns}"


@dataclass(frozen=True)
class Scale:
    """The scale of the scores, and its printed form: √64, or 0.125."""

    value: float
    words: str
    root: float | None = None

    @classmethod
    def root_of(cls, dim: float) -> Scale:
        return cls(1 / math.sqrt(dim), f"divided by √{dim:g}", dim)


@dataclass(frozen=True)
class Example:
    """All printed tables and settings of one worked example."""

    tables: dict[str, Table]
    name: str = ""
    scale: Scale | None = None
    allowed: list[list[bool]] | None = None
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __contains__(self, name: str) -> bool:
        return name in self.tables

    @property
    def dim(self) -> int | None:
        """The dim of a query or a key."""
        for name in ("q", "k"):
            if name in self.tables:
                return self.tables[name].shape[1]
        for name in ("w_q", "w_k"):
            if name in self.tables:
                return self.tables[name].shape[1]
        return None

    @property
    def keys(self) -> int | None:
        """The number of keys."""
        if "k" in self.tables:
            return self.tables["k"].shape[0]
        for name in ("scores", "scaled", "masked", "exps", "weights"):
            if name in self.tables and not self.tables[name].groups:
                return self.tables[name].shape[1]
        return None

    def check_shapes(self) -> None:
        """Raise ShapeError for the first two tables that do not fit together."""
        for left, right, sides, why in FITS:
            if left in self.tables and right in self.tables:
                a, b = self.tables[left], self.tables[right]
                if a.groups or b.groups:
                    continue
                if a.shape[sides[0]] != b.shape[sides[1]]:
                    needs = why.format(left=left, right=right)
                    raise ShapeError(f"{left} is {a.size()} and {right} is {b.size()}; {needs}.")
        self._check_heads()
        if self.allowed is not None:
            for name in ("scores", "scaled", "masked", "weights"):
                table = self.tables.get(name)
                size = (len(self.allowed), len(self.allowed[0]))
                if table is not None and not table.groups and table.shape != size:
                    raise ShapeError(
                        f"mask is {size[0]} × {size[1]} and {name} is {table.size()}; "
                        "a mask has one cell per score."
                    )

    def _check_heads(self) -> None:
        heads = [table for name, table in self.tables.items() if name.startswith("head ")]
        if not heads:
            return
        rows, width = heads[0].shape[0], sum(table.shape[1] for table in heads)
        made = self.tables["output"].shape
        if made == (rows, width):
            return
        stacked = made == (sum(table.shape[0] for table in heads), heads[0].shape[1])
        why = (
            "they stand over one another there; join them along the last axis"
            if stacked
            else "joined heads have a row per token"
        )
        raise ShapeError(
            f"{len(heads)} heads side by side are {rows} × {width} and what they are joined to is "
            f"{made[0]} × {made[1]}; {why}."
        )

    def labels(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of a step's rows and columns, if known."""
        table = self.tables[name]
        rows, columns = table.shape
        queries, keys = self.tokens, self.key_tokens or self.tokens
        by_key = name in ("k", "v")
        above = table.columns or (keys if name in ("scores", "scaled", "masked", "exps", "weights") else ())
        beside = table.rows or (keys if by_key else () if name.startswith("w_") else queries)
        return (beside if len(beside) == rows else ()), (above if len(above) == columns else ())


_DOT = "a dot product needs {left} and {right} of equal width"
_ROW = "{right} has one row per row of {left}"
_KEY = "{right} has one column per row of {left}"
_SAME = "{right} has one cell per cell of {left}"
_IN = "{right} needs one row per column of {left}"
_MIX = "{left} needs one column per row of {right}"
FITS: tuple[tuple[str, str, tuple[int, int], str], ...] = (
    ("x", "w_q", (1, 0), _IN),
    ("x", "w_k", (1, 0), _IN),
    ("x", "w_v", (1, 0), _IN),
    ("x", "q", (0, 0), _ROW),
    ("w_q", "q", (1, 1), "{right} is as wide as {left}"),
    ("w_k", "k", (1, 1), "{right} is as wide as {left}"),
    ("w_v", "v", (1, 1), "{right} is as wide as {left}"),
    ("q", "k", (1, 1), _DOT),
    ("k", "v", (0, 0), _ROW),
    *((("q", name, (0, 0), _ROW)) for name in ("scores", "scaled", "masked", "weights", "output")),
    *((("k", name, (0, 1), _KEY)) for name in ("scores", "scaled", "masked", "weights")),
    *(
        (("scores", name, (side, side), _SAME))
        for name in ("scaled", "masked", "exps", "weights")
        for side in (0, 1)
    ),
    *((("scaled", name, (side, side), _SAME)) for name in ("masked", "exps", "weights") for side in (0, 1)),
    *((("exps", "weights", (side, side), _SAME)) for side in (0, 1)),
    ("exps", "total", (0, 0), _ROW),
    *(((name, "v", (1, 0), _MIX)) for name in ("weights", "scaled", "scores", "masked")),
    *(((name, "output", (0, 0), _ROW)) for name in ("weights", "scaled", "scores")),
    ("v", "output", (1, 1), "{right} is as wide as {left}"),
    ("output", "w_o", (1, 0), _IN),
    ("output", "projected", (0, 0), _ROW),
)
