"""Which statistics ride in a forward pass, and how to read its results.

Only exact types ride: a subclass may compute something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import NO_RIDERS, Riders, Streamed
from regard.stats import (
    ColumnStatistic,
    Entropy,
    Frame,
    MaxScore,
    MeanDistance,
    RowMaximum,
    Statistic,
)

__all__ = ["NO_RIDE", "Ride", "RowRide", "may_ride", "ride_of_rows"]

# Row statistics that every streaming forward computes.
ROWS = (Entropy, MaxScore, MeanDistance)


@dataclass(frozen=True)
class Ride:
    """The riders of a forward pass, the names of their statistics, and how to read the results."""

    riders: Riders
    names: frozenset[str]

    def read(self, result: Streamed) -> dict[str, Any]:
        """The results of the statistics that rode."""
        return {}

    def rest(
        self, statistics: Mapping[str, Statistic], found: Mapping[str, Any], result: Streamed
    ) -> dict[str, Statistic]:
        """The statistics that need a second pass."""
        return {name: s for name, s in statistics.items() if name not in found}

    def join(self, found: Mapping[str, Any], more: Mapping[str, Any], result: Streamed) -> dict[str, Any]:
        """The results of all statistics: those that were read, and those of the second pass."""
        return {**found, **more}

    def has_gradient(self, statistic: Statistic) -> bool:
        """Whether gradients flow into the result of a statistic that rides."""
        return False


NO_RIDE = Ride(NO_RIDERS, frozenset())


def may_ride(statistic: Statistic) -> bool:
    """Whether a streaming forward can compute a statistic, if its columns allow it."""
    return isinstance(statistic, ColumnStatistic) or type(statistic) in ROWS


def ride_of_rows(
    problem: Problem, frame: Frame, statistics: Mapping[str, Statistic], differentiable: bool
) -> RowRide:
    """The ride of all row statistics in a streaming forward."""
    columns = {name: s.columns(frame) for name, s in statistics.items() if isinstance(s, ColumnStatistic)}
    group = problem.group
    riding = {
        name: s
        for name, s in statistics.items()
        if type(s) in ROWS or (name in columns and (group == 1 or _shared(columns[name], group)))
    }
    columns = {name: c for name, c in columns.items() if name in riding}
    kinds = {type(s) for s in riding.values()}
    riders = Riders(
        _joined(list(columns.values()), problem, differentiable),
        Entropy in kinds,
        MeanDistance in kinds,
        MaxScore in kinds,
    )
    return RowRide(riders, frozenset(riding), riding, columns, frame, differentiable)


@dataclass(frozen=True)
class RowRide(Ride):
    """Entropy, distances, largest scores, and columns that are mixed like values."""

    riding: Mapping[str, Statistic]
    columns: Mapping[str, Tensor]
    frame: Frame
    differentiable: bool

    def read(self, result: Streamed) -> dict[str, Any]:
        found: dict[str, Any] = {}
        start = 0
        for name, statistic in self.riding.items():
            if isinstance(statistic, ColumnStatistic) and result.columns is not None:
                width = self.columns[name].shape[-1]
                # A slice of everything would cost another view.
                whole = width == result.columns.shape[-1]
                sums = result.columns if whole else result.columns[..., start : start + width]
                sums = self._kept(sums)
                start += width
                found[name] = statistic.finish({"sums": sums}, self.frame)
            elif isinstance(statistic, Entropy) and result.entropy is not None:
                found[name] = self._kept(result.entropy)
            elif isinstance(statistic, MeanDistance):
                found[name] = result.distance
            elif result.max_score is not None and result.argmax is not None:
                found[name] = RowMaximum(result.max_score, result.argmax)
        return found

    def has_gradient(self, statistic: Statistic) -> bool:
        return not isinstance(statistic, MaxScore | MeanDistance)

    def _kept(self, x: Tensor) -> Tensor:
        return x.detach() if x.requires_grad and not self.differentiable else x


def _shared(columns: Tensor, group: int) -> bool:
    """Whether the query heads that share a key head share their columns too."""
    if columns.shape[1] == 1:
        return True
    grouped = columns.unflatten(1, (-1, group))
    return bool((grouped == grouped[:, :, :1]).all())


def _joined(parts: list[Tensor], problem: Problem, differentiable: bool) -> Tensor | None:
    """The columns of all statistics side by side, in one copy if all heads share them."""
    if not parts:
        return None
    lead = torch.broadcast_shapes(*(c.shape[:2] for c in parts))
    full = [c.expand(*lead, -1, -1)[:, :: problem.group if lead[1] > 1 else 1] for c in parts]
    joined = torch.cat([c.to(problem.accumulate) for c in full], -1)
    joined = joined if differentiable else joined.detach()
    return joined.expand(problem.batch, problem.k.shape[1], -1, -1)
