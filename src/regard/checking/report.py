"""`Report`: the verdicts about one text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.checking.text import as_rich, as_text
from regard.checking.verdict import Cell, CheckedExample, CheckedStep

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """The verdicts about one text, which has one example or several.

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
        return as_text(self.examples)

    def __rich__(self) -> Any:
        return as_rich(self.examples)

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
