"""What `observe` does behind its boundary: choose how each statistic is computed, then compute them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor

from regard.engine import native
from regard.engine import triton as gpu
from regard.engine.autograd import attend
from regard.engine.dispatch import choose
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.second_pass import frame_of, on_gpu, summarise
from regard.engine.triton.forward import vendor
from regard.engine.triton.replay.calls import replay_or_call
from regard.errors import BackendError, StatisticError
from regard.stats import (
    ColumnStatistic,
    Custom,
    Entropy,
    Frame,
    MaxScore,
    MeanDistance,
    Pooled,
    PooledMaps,
    RowMaximum,
    SinkMass,
    Statistic,
    TopK,
    TopKeys,
)

__all__ = ["observed"]

# What every forward pass can say of its rows.
ROWS = (Entropy, MaxScore, MeanDistance)
# Sides of blocks whose largest weights a forward pass on a GPU may tell.
GRAINS = (64, 128)
# Where statistics of this package are.
OURS = "regard.stats."


def observed(
    problem: Problem, statistics: Mapping[str, Statistic], backend: str, differentiable: bool
) -> tuple[Streamed, dict[str, Any]]:
    """Run the forward pass and everything asked about the map.

    If every statistic can ride in the forward pass there is only that pass, by native kernels where there are
    any. Otherwise the fastest forward that knows its log-sum-exp runs first, and one second pass computes the
    rest.
    """
    if not differentiable and (backend == "triton" or on_gpu(problem, backend)):
        call = partial(_observed_on_gpu, problem, statistics, backend)
        if not _is_ours(statistics):
            return call()
        return replay_or_call(problem, (), ("observe", backend, *statistics, *statistics.values()), call)
    frame = _checked_frame(problem, statistics)
    columns = {name: s.columns(frame) for name, s in statistics.items() if isinstance(s, ColumnStatistic)}
    riding = {name: s for name, s in statistics.items() if _can_ride(s, columns.get(name), problem.group)}
    if differentiable:
        _check_differentiable(statistics, riding, backend)
    chosen, riding = _planned(problem, statistics, riding, columns, backend, differentiable)
    riders = _riders(riding, columns, problem, differentiable)
    result = attend(problem, chosen, riders)
    found = _read(riding, columns, frame, result, differentiable)
    return result, _with_rest(found, problem, statistics, backend, result)


def _checked_frame(problem: Problem, statistics: Mapping[str, Statistic]) -> Frame:
    """The frame of a map over which every statistic can be computed."""
    frame = frame_of(problem)
    for statistic in statistics.values():
        statistic.check(frame)
    return frame


def _is_ours(statistics: Mapping[str, Statistic]) -> bool:
    """Whether statistics are all of this package: those of users may do anything, and do it each time."""
    kinds = {type(s) for s in statistics.values()}
    return Custom not in kinds and all(kind.__module__.startswith(OURS) for kind in kinds)


def _observed_on_gpu(
    problem: Problem, statistics: Mapping[str, Statistic], backend: str
) -> tuple[Streamed, dict[str, Any]]:
    """The same by kernels for GPUs, which ask devices nothing and make no columns."""
    frame = _checked_frame(problem, statistics)
    if backend == "triton":
        choose(problem, backend)  # says what they cannot run
    asked = [s for s in statistics.values() if type(s) is SinkMass]
    first = asked[0].first if asked and gpu.sums_first_keys(problem, asked[0].first) else 0
    riding = {
        name: s
        for name, s in statistics.items()
        if type(s) in ROWS or (type(s) is SinkMass and s.first == first)
    }
    kinds = {type(s) for s in riding.values()}
    riders = Riders(
        entropy=Entropy in kinds,
        distance=MeanDistance in kinds,
        max_score=MaxScore in kinds,
        first=first,
        top_keys=_most_top_keys(statistics),
        grain=_grain(statistics),
    )
    result = attend(problem, "triton", riders)
    found = _read(riding, {}, frame, result, differentiable=False)
    found |= _read_top_keys(statistics, result)
    maxima = {name: s for name, s in statistics.items() if _is_told(s, result)}
    found |= {name: result.block_maxima for name, s in maxima.items() if s.how == "max"}
    left = {**statistics, **{name: replace(s, how="mean") for name, s in maxima.items()}}
    found = _with_rest(found, problem, left, backend, result)
    for name, s in maxima.items():
        if s.how == "both" and result.block_maxima is not None:
            found[name] = PooledMaps(found[name], result.block_maxima)
    return result, found


def _read_top_keys(statistics: Mapping[str, Statistic], result: Streamed) -> dict[str, TopKeys]:
    """The heaviest keys that a forward pass told, to whoever asked for as many or fewer."""
    weight, key = result.top_weight, result.top_key
    if weight is None or key is None:
        return {}
    asked = {name: s.k for name, s in statistics.items() if type(s) is TopK and s.k <= weight.shape[-1]}
    return {name: TopKeys(*(x[..., :k].contiguous() for x in (weight, key))) for name, k in asked.items()}


def _is_told(statistic: Statistic, result: Streamed) -> TypeGuard[Pooled]:
    """Whether a forward pass told the largest weights of an overview's own blocks."""
    if type(statistic) is not Pooled or statistic.how == "mean":
        return False
    return result.block_maxima is not None and statistic.size == result.grain


def _most_top_keys(statistics: Mapping[str, Statistic]) -> int:
    """How many top keys to ask a forward pass for: of what is wanted, the most that it can tell."""
    wanted = [s.k for s in statistics.values() if type(s) is TopK and s.k <= gpu.MAX_TOP_KEYS]
    return max((k for k in wanted if k <= gpu.MAX_FUSED_TOP_KEYS), default=max(wanted, default=0))


def _grain(statistics: Mapping[str, Statistic]) -> int:
    """The side of the blocks whose largest weights make every overview's, or 0."""
    asked = [s.size for s in statistics.values() if type(s) is Pooled and s.how != "mean"]
    sizes = [size for size in asked if gpu.fits(size)]
    return max((g for g in GRAINS if all(size % g == 0 for size in sizes)), default=0) if sizes else 0


def _with_rest(
    found: dict[str, Any],
    problem: Problem,
    statistics: Mapping[str, Statistic],
    backend: str,
    result: Streamed,
) -> dict[str, Any]:
    """What came with the forward pass and what a second pass says, in the order that was asked for."""
    rest = {name: s for name, s in statistics.items() if name not in found}
    if rest:
        with torch.no_grad():
            found |= summarise(problem, result.lse, rest, backend, result)
    return {name: found[name] for name in statistics}


def _planned(
    problem: Problem,
    statistics: Mapping[str, Statistic],
    riding: dict[str, Statistic],
    columns: Mapping[str, Tensor],
    backend: str,
    differentiable: bool,
) -> tuple[str, dict[str, Statistic]]:
    """Who does the forward pass, and which of the statistics that could ride in it do."""
    chosen = choose(problem, backend).backend
    if chosen == "sdpa" and not _knows_lse(problem):
        if backend == "sdpa":
            raise BackendError(
                "backend='sdpa' cannot observe this call: on a GPU PyTorch's kernels tell the log-sum-exp of "
                f"half precision up to dim {vendor.WIDEST} only, and q is {problem.q.dtype} with dim "
                f"{problem.q.shape[-1]}. Use backend='torch'."
            )
        chosen = "torch"
    if chosen == "sdpa" and not differentiable:
        alone = backend == "auto" and 0 < len(riding) == len(statistics)
        if alone and native.can_attend(problem, list(columns.values())):
            return "native", riding
        # With native kernels a second pass is cheaper than a streamed forward that brings everything along.
        if not alone or native.refusal(problem) is None:
            return "sdpa", {}
    return ("torch" if riding else chosen), riding


def _knows_lse(problem: Problem) -> bool:
    """Whether PyTorch's kernel for a call that it can do also tells the log-sum-exp."""
    return not problem.q.is_cuda or vendor.applicable(problem)


def _can_ride(statistic: Statistic, columns: Tensor | None, group: int) -> bool:
    """Row statistics that a forward pass can bring along. Exact types: a subclass may mean something else."""
    if columns is not None:
        return group == 1 or _shared(columns, group)
    return type(statistic) in ROWS


def _shared(columns: Tensor, group: int) -> bool:
    """Whether the query heads that share a key head share their columns too."""
    if columns.shape[1] == 1:
        return True
    grouped = columns.unflatten(1, (-1, group))
    return bool((grouped == grouped[:, :, :1]).all())


def _check_differentiable(
    statistics: Mapping[str, Statistic], riding: Mapping[str, Statistic], backend: str
) -> None:
    if backend == "sdpa" and statistics:
        raise BackendError(
            "backend='sdpa' cannot give statistics a gradient: PyTorch's kernels bring none along. Use "
            "backend='torch' with differentiable=True."
        )
    for name, statistic in statistics.items():
        if name not in riding or isinstance(statistic, MaxScore | MeanDistance):
            raise StatisticError(
                f"differentiable=True cannot give {name} a gradient; Entropy, SinkMass, SegmentMass and "
                "ValueWeighted have one. Observe the others in a call of their own."
            )


def _riders(
    riding: Mapping[str, Statistic], columns: Mapping[str, Tensor], problem: Problem, differentiable: bool
) -> Riders:
    parts = [columns[name] for name in riding if name in columns]
    kinds = {type(s) for s in riding.values()}
    joined = None
    if parts:
        # Where all heads share their columns there is one copy of them.
        lead = [max(c.shape[axis] for c in parts) for axis in (0, 1)]
        full = [c.expand(*lead, -1, -1)[:, :: problem.group if lead[1] > 1 else 1] for c in parts]
        joined = torch.cat([c.to(problem.accumulate) for c in full], -1)
        joined = joined if differentiable else joined.detach()
        joined = joined.expand(problem.batch, problem.k.shape[1], -1, -1)
    return Riders(joined, Entropy in kinds, MeanDistance in kinds, MaxScore in kinds)


def _read(
    riding: Mapping[str, Statistic],
    columns: Mapping[str, Tensor],
    frame: Frame,
    result: Streamed,
    differentiable: bool,
) -> dict[str, Any]:
    """What each rider brought back, as its statistic would have said it."""
    found: dict[str, Any] = {}
    start = 0
    for name, statistic in riding.items():
        if isinstance(statistic, ColumnStatistic) and result.columns is not None:
            width = columns[name].shape[-1]
            sums = result.columns[..., start : start + width]
            start += width
            found[name] = statistic.finish({"sums": sums if differentiable else sums.detach()}, frame)
        elif isinstance(statistic, Entropy) and result.entropy is not None:
            found[name] = result.entropy if differentiable else result.entropy.detach()
        elif isinstance(statistic, MeanDistance):
            found[name] = result.distance
        elif isinstance(statistic, SinkMass):
            found[name] = result.first
        elif result.max_score is not None and result.argmax is not None:
            found[name] = RowMaximum(result.max_score, result.argmax)
    return found
