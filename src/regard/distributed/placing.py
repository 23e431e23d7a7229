"""The place of a statistic's result: with the rows, with the keys, or on every rank."""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import StatisticError
from regard.stats import (
    ColumnMass,
    ColumnMax,
    ColumnStatistic,
    Custom,
    Entropy,
    Frame,
    MaxScore,
    MeanDistance,
    NormWeighted,
    Statistic,
    TopK,
    ValueWeighted,
    WindowedMass,
)

__all__ = ["RowsFrame", "check_merge", "place_of", "reads_values"]


@dataclass(frozen=True)
class RowsFrame(Frame):
    """The frame of adjacent queries and all keys; row 0 is at position `first`."""

    first: int = 0

    @property
    def offset(self) -> int:
        return self.first


def place_of(statistic: Statistic) -> str:
    """`rows`: one entry per query; `columns`: one per key; `both`: both kinds; `whole`: one for the whole
    map.

    >>> place_of(Entropy()), place_of(ColumnMass())
    ('rows', 'columns')
    """
    kind = type(statistic)
    if kind is Custom:
        return {"rows": "rows", "columns": "columns", "map": "whole"}[statistic.over]  # type: ignore[attr-defined]
    if isinstance(statistic, ColumnStatistic) or kind in (Entropy, MaxScore, MeanDistance, TopK):
        return "rows"
    return (
        "columns"
        if kind in (ColumnMass, ColumnMax, WindowedMass)
        else "both"
        if kind is NormWeighted
        else "whole"
    )


def reads_values(statistic: Statistic) -> bool:
    """Whether it needs the values of all keys; assumed for users' own statistics."""
    ours = type(statistic).__module__.startswith("regard.")
    return not ours or isinstance(statistic, ValueWeighted | NormWeighted | Custom | ColumnMax)


def check_merge(statistic: Statistic) -> None:
    """Raise unless a statistic defines how to merge the states of several ranks."""
    kind = type(statistic)
    if place_of(statistic) == "rows" or kind.__module__.startswith("regard."):
        return
    own = kind.__mro__[: kind.__mro__.index(Statistic)]
    if not any(callable(vars(c).get("merge")) for c in own):
        raise StatisticError(
            f"{kind.__name__} defines no merge, and each rank has seen only a part of the map. Define "
            f"merge(self, state, other); if its states add up, `merge = Statistic.merge` says so."
        )
