"""What `observe` does behind its boundary: choose how each statistic is computed, then compute them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.engine import native
from regard.engine import triton as gpu
from regard.engine.autograd import attend
from regard.engine.dispatch import choose
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.second_pass import frame_of, summarise
from regard.errors import StatisticError
from regard.stats import ColumnStatistic, Entropy, Frame, MaxScore, MeanDistance, RowMaximum, Statistic

__all__ = ["observed"]


def observed(
    problem: Problem, statistics: Mapping[str, Statistic], backend: str, differentiable: bool
) -> tuple[Streamed, dict[str, Any]]:
    """Run the forward pass and everything asked about the map.

    If every statistic can ride in the forward pass there is only that pass. Otherwise, and where native
    kernels make a second pass cheaper than riding, the fastest forward that knows its log-sum-exp runs first,
    and one second pass computes the rest.
    """
    frame = frame_of(problem)
    for statistic in statistics.values():
        statistic.check(frame)
    chosen = choose(problem, backend).backend
    riding = {name: s for name, s in statistics.items() if _can_ride(s, frame, problem.group)}
    if differentiable:
        _check_differentiable(statistics, riding)
    alone = len(riding) == len(statistics) and (
        differentiable or native.refusal(problem, backend) is not None
    )
    if chosen == "sdpa" and statistics and (backend == "sdpa" or not alone):
        riding = {}
    elif riding and (chosen != "triton" or differentiable):
        chosen = "torch"
    if not differentiable and (chosen == "triton" or _goes_to_gpu(problem, backend)):
        chosen, riding = "triton", {n: s for n, s in riding.items() if not isinstance(s, ColumnStatistic)}
    riders = _riders(riding, frame, problem)
    result = attend(problem, chosen, riders)
    found = _read(riding, frame, result, differentiable)
    rest = {name: s for name, s in statistics.items() if name not in riding}
    if rest:
        with torch.no_grad():
            found |= summarise(problem, result.lse, rest, backend)
    return result, {name: found[name] for name in statistics}


def _goes_to_gpu(problem: Problem, backend: str) -> bool:
    """Whether the kernels for GPUs observe a call whose plain forward is somebody else's."""
    return backend == "auto" and problem.q.is_cuda and gpu.refusal(problem) is None


def _can_ride(statistic: Statistic, frame: Frame, group: int) -> bool:
    """Row statistics that a forward pass can bring along. Exact types: a subclass may mean something else."""
    if isinstance(statistic, ColumnStatistic):
        return group == 1 or _shared(statistic.columns(frame), group)
    return type(statistic) in (Entropy, MaxScore, MeanDistance)


def _shared(columns: Tensor, group: int) -> bool:
    """Whether the query heads that share a key head share their columns too."""
    if columns.shape[1] == 1:
        return True
    grouped = columns.unflatten(1, (-1, group))
    return bool((grouped == grouped[:, :, :1]).all())


def _check_differentiable(statistics: Mapping[str, Statistic], riding: Mapping[str, Statistic]) -> None:
    for name, statistic in statistics.items():
        if name not in riding or isinstance(statistic, MaxScore | MeanDistance):
            raise StatisticError(
                f"differentiable=True cannot give {name} a gradient; Entropy, SinkMass, SegmentMass and "
                "ValueWeighted have one. Observe the others in a call of their own."
            )


def _riders(riding: Mapping[str, Statistic], frame: Frame, problem: Problem) -> Riders:
    columns = [s.columns(frame) for s in riding.values() if isinstance(s, ColumnStatistic)]
    kinds = {type(s) for s in riding.values()}
    joined = None
    if columns:
        full = [c.expand(problem.batch, problem.heads, -1, -1)[:, :: problem.group] for c in columns]
        joined = torch.cat([c.to(problem.accumulate) for c in full], -1).detach()
    return Riders(joined, Entropy in kinds, MeanDistance in kinds, MaxScore in kinds)


def _read(
    riding: Mapping[str, Statistic], frame: Frame, result: Streamed, differentiable: bool
) -> dict[str, Any]:
    """What each rider brought back, as its statistic would have said it."""
    found: dict[str, Any] = {}
    start = 0
    for name, statistic in riding.items():
        if isinstance(statistic, ColumnStatistic) and result.columns is not None:
            width = statistic.columns(frame).shape[-1]
            sums = result.columns[..., start : start + width]
            start += width
            found[name] = statistic.finish({"sums": sums if differentiable else sums.detach()}, frame)
        elif isinstance(statistic, Entropy) and result.entropy is not None:
            found[name] = result.entropy if differentiable else result.entropy.detach()
        elif isinstance(statistic, MeanDistance):
            found[name] = result.distance
        elif result.peak is not None and result.peak_key is not None:
            found[name] = RowMaximum(result.peak, result.peak_key)
    return found
