"""What is said about each printed number: its verdict, the right number beside it, and the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from regard.checking.numeral import Numeral

__all__ = ["Cell", "CheckedExample", "CheckedStep", "Report", "Verdict"]


class Verdict(StrEnum):
    """How a printed number stands to the others."""

    GIVEN = "given"  # nothing else that is printed says what it should be
    RIGHT = "right"  # what the first tables give, rounded to the printed digits
    ROUNDED = "rounded"  # reached only by rounding on the way, or if printed inputs are rounded themselves
    INHERITED = "inherited"  # follows from printed numbers that are wrong
    WRONG = "wrong"  # follows from nothing that is printed


@dataclass(frozen=True)
class Cell:
    """One printed number: its verdict, the number that should stand there, and why it does not."""

    row: int
    column: int
    printed: Numeral
    verdict: Verdict
    exact: float | None = None
    cause: str = ""

    @property
    def right(self) -> str:
        """The right number with as many digits as were printed; empty where nothing tells it."""
        return "" if self.exact is None else self.printed.right(self.exact)

    @property
    def wrong(self) -> bool:
        """Whether another number should stand here, whatever the reason."""
        return self.verdict not in (Verdict.GIVEN, Verdict.RIGHT)


@dataclass(frozen=True)
class CheckedStep:
    """One printed table, cell by cell; `causes` are the reasons found in it, each once."""

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
        """Where a cell stands, in the words of the example where it has any."""
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
        """How many printed numbers something else says anything about."""
        return sum(cell.verdict is not Verdict.GIVEN for step in self.steps for cell in step)

    @property
    def causes(self) -> list[str]:
        return list(dict.fromkeys(cause for step in self.steps for cause in step.causes))


@dataclass(frozen=True)
class Report:
    """What was found in one paste: one example, or several.

    >>> from regard.checking import check
    >>> report = check("scores: 1 0 1\\nweights: 0.42 0.16 0.43")
    >>> [cell.verdict.value for cell in report["weights"]], report.ok
    (['right', 'right', 'wrong'], False)
    """

    examples: tuple[CheckedExample, ...]

    def __iter__(self) -> Iterator[CheckedExample]:
        return iter(self.examples)

    def __getitem__(self, name: str) -> CheckedStep:
        return self.examples[0][name]

    @property
    def ok(self) -> bool:
        """Whether every checked number is right."""
        return not self.wrong

    @property
    def wrong(self) -> list[Cell]:
        return [cell for example in self.examples for cell in example.wrong]

    @property
    def causes(self) -> list[str]:
        return list(dict.fromkeys(cause for example in self.examples for cause in example.causes))

    def __str__(self) -> str:
        from regard.checking.text import as_text

        return as_text(self)

    def __rich__(self) -> Any:
        from regard.checking.text import as_rich

        return as_rich(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data that `json.dumps` takes."""
        return {
            "ok": self.ok,
            "examples": [
                {
                    "name": example.name,
                    "checked": example.checked,
                    "wrong": len(example.wrong),
                    "notes": list(example.notes),
                    "steps": [_plain(step) for step in example.steps],
                }
                for example in self.examples
            ],
        }


def _plain(step: CheckedStep) -> dict[str, Any]:
    cells = [
        [
            {
                "printed": cell.printed.text,
                "verdict": cell.verdict.value,
                "right": cell.right,
                "cause": cell.cause,
            }
            for cell in row
        ]
        for row in step.cells
    ]
    return {
        "name": step.name,
        "formula": step.formula,
        "verdict": step.verdict.value,
        "rows": list(step.rows),
        "columns": list(step.columns),
        "cells": cells,
        "causes": step.causes,
    }
