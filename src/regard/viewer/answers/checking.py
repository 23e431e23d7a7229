"""Printed examples, judged."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

__all__ = [
    "CheckReport",
]

Verdict = Literal["given", "right", "rounded", "inherited", "wrong"]


class CheckedCell(BaseModel):
    printed: str
    verdict: Verdict
    right: str
    cause: str


class CheckedStep(BaseModel):
    name: str
    formula: str
    verdict: Verdict
    rows: list[str]
    columns: list[str]
    cells: list[list[CheckedCell]]
    causes: list[str]


class CheckedExample(BaseModel):
    name: str
    checked: int
    wrong: int
    notes: list[str]
    steps: list[CheckedStep]


class CheckReport(BaseModel):
    """Whether printed numbers follow from each other, example by example."""

    ok: bool
    examples: list[CheckedExample]
