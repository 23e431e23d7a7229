"""The verdict about each printed number, with the right number and the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from regard.checking.numeral import Numeral

__all__ = ["Cell", "CheckedExample", "CheckedStep", "Verdict"]


class Verdict(StrEnum):
    """How a printed number relates to the others."""

    GIVEN = "given"  # nothing else that is printed says what it should be
    RIGHT = "right"  # what the first tables give, rounded to the printed digits
    ROUNDED = "rounded"  # reached only by rounding on the way, or if printed inputs are rounded themselves
    INHERITED = "inherited"  # follows from printed numbers that are wrong
    WRONG = "wrong"  # follows from nothing that is printed


@dataclass(frozen=True)
class Cell:
    """One printed number: its verdict, the right number, and the cause of a difference."""

    row: int
    column: int
    printed: Numeral
    verdict: Verdict
    exact: float | None = None
    cause: str = ""

    @property
    def right(self) -> str:
        """The right number with the printed number of digits; empty if unknown."""
        return "" if self.exact is None else self.printed.right(self.exact)

    @property
    def wrong(self) -> bool:
        """Whether the number is wrong, for any cause."""
        return self.verdict not in (Verdict.GIVEN, Verdict.RIGHT)


@dataclass(frozen=True)
class CheckedStep:
    """One printed table, cell by cell; `causes` are the distinct causes in it."""

    name: str
    formula: str
    cells: tuple[tuple[Cell, ...], ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Cell]:
        return (cell for row in self.cells for cell in row)

    @property
    def wrong(self) -> list[Cell]:
        return [cell for cell in self if cell.wrong]

    @property
    def causes(self) -> list[str]:
        return list(dict.fromkeys(cell.cause for cell in self if cell.cause))

    @property
    def verdict(self) -> Verdict:
        """The worst verdict in the table."""
        order = list(Verdict)
        return max((cell.verdict for cell in self), key=order.index)

    def place(self, cell: Cell) -> str:
        """The place of a cell, with the example's own names if it has any."""
        row = self.rows[cell.row] if self.rows else f"row {cell.row}"
        column = self.columns[cell.column] if self.columns else f"column {cell.column}"
        single = len(self.cells) == 1 and not self.rows
        return column if single else row if len(self.cells[0]) == 1 else f"{row}, {column}"


@dataclass(frozen=True)
class CheckedExample:
    """All tables of one example."""

    name: str
    steps: tuple[CheckedStep, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> CheckedStep:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(
            f"no table is called {name!r}; there are {', '.join(step.name for step in self.steps)}."
        )

    def __contains__(self, name: object) -> bool:
        return any(step.name == name for step in self.steps)

    @property
    def wrong(self) -> list[Cell]:
        return [cell for step in self.steps for cell in step.wrong]

    @property
    def checked(self) -> int:
        """The number of printed numbers that could be checked."""
        return sum(cell.verdict is not Verdict.GIVEN for step in self.steps for cell in step)

    @property
    def causes(self) -> list[str]:
        return list(dict.fromkeys(cause for step in self.steps for cause in step.causes))
