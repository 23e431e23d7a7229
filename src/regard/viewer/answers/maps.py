"""Readings of one head's map."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = [
    "Cell",
    "Column",
    "Region",
    "Row",
    "Statistics",
    "Steps",
    "TokenProbability",
]


class Cell(BaseModel):
    """One pair of a query and a key; `rank` 1 is the heaviest key of the row."""

    query: int
    key: int
    weight: float
    score: float | None
    log_weight: float | None
    rank: int | None
    visible: bool
    distance: int


class KeyWeight(BaseModel):
    key: int
    weight: float


class QueryWeight(BaseModel):
    query: int
    weight: float


class Row(BaseModel):
    """The heaviest keys of a query, and how spread its weights are."""

    query: int
    top: list[KeyWeight]
    entropy: float
    lse: float | None
    mass_shown: float


class Column(BaseModel):
    """The queries that attend to a key most, and all that it receives."""

    key: int
    top: list[QueryWeight]
    mass: float


class Region(BaseModel):
    """Sums over a rectangle of a map; `share` is the mass of one query, on average."""

    cells: int
    visible: int
    mass: float
    share: float
    mean: float
    max: float
    max_at: tuple[int, int] | None
    entropy_mean: float | None


class DecayCurve(BaseModel):
    distance: list[float]
    weight: list[float]


class ProfileCurve(BaseModel):
    position: list[float]
    mass: list[float]


class Curves(BaseModel):
    decay: DecayCurve | None = None
    profile: ProfileCurve | None = None


class Statistics(BaseModel):
    """Of one head: values by row, curves by distance and position, single numbers."""

    names: list[str]
    rows: dict[str, list[float | None]]
    curves: Curves
    numbers: dict[str, float | None]


class TokenProbability(BaseModel):
    """A token that may come next."""

    token: str
    id: int
    probability: float


class Part(BaseModel):
    """A table of numbers with names along both sides; `shape` is that of the whole table.

    `worked`: how each number follows from the step before; empty if that is not written out.
    """

    name: str
    shape: list[int]
    rows: list[str]
    columns: list[str]
    data: list[list[float | None]]
    worked: list[list[str]]


class Step(BaseModel):
    """One step of the arithmetic, with its tables."""

    name: str
    title: str
    formula: str
    sentence: str
    parts: list[Part]


class Steps(BaseModel):
    """The steps of one query; a worked example has neither a layer nor a group of heads."""

    query: int
    token: str
    layer: int | None = None
    head: int
    keys: list[int]
    tokens: list[str]
    visible: int
    more: int
    dim: int
    group: int | None = None
    scale: float
    temperature: float
    scaled: bool
    entropy: float | None
    steps: list[Step]
    next: list[TokenProbability]
