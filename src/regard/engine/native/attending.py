"""Attention by the native kernels: one pass returns the output, the log-sum-exp and the riders."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine.finite import finite
from regard.engine.library import load
from regard.engine.native.availability import refusal
from regard.engine.native.grid import pieces
from regard.engine.native.sums import Distances, Entropies, MaxScores, Mixes, Sum, starts
from regard.engine.native.tasks import Batch, Operands, packed, task_of
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.sink import with_sink
from regard.errors import BackendError
from regard.stats import Frame
from regard.stats.folds import DistanceFold, EntropyFold, MaxScoreFold, MixFold

__all__ = ["attend", "can_attend", "empty", "give"]

# The kernels repack keys and values. For fewer rows than this, PyTorch's kernel and a second pass are faster,
# unless there are also few keys: then Python overhead dominates, and one pass has less of it.
FEW, SHORT = 32, 256
# The most terms of a dot product, so that scores of moderate inputs are far from overflow.
TERMS = 256


def can_attend(problem: Problem, columns: list[Tensor]) -> bool:
    """Whether the native kernels run a problem that the `sdpa` backend was chosen for. Garbage behind the
    mask has been ruled out.

    Half precision is left to PyTorch, whose half-precision products are faster than float32.
    """
    terms = abs(problem.scoring.scale) * problem.q.shape[-1]
    suits = problem.q.dtype == torch.float32 and problem.scoring.linear and not problem.dropout
    long = problem.q_len < FEW and problem.k_len > SHORT
    if not suits or long or terms > TERMS or refusal(problem) is not None:
        return False
    inputs = (problem.q, problem.k, problem.v) if problem.mask is None else ()
    return finite(*inputs, *columns)


def attend(problem: Problem, riders: Riders) -> Streamed:
    """Output, log-sum-exp and riders of every row."""
    library = load()
    if isinstance(library, str):
        raise BackendError(f"{library}; use torch operations.")
    result, batch = empty(problem, riders), Batch(library)
    sums = give(problem, riders, result, batch)
    batch.finish()
    for each in sums:
        each.deliver()
    return result if problem.sink is None else with_sink(problem.sink, result, problem.q.dtype)


def give(problem: Problem, riders: Riders, result: Streamed, batch: Batch) -> list[Sum]:
    """Give the jobs of a pass to a batch; returns the sums to be delivered when they are done."""
    sums = _sums(problem, riders, result)
    operands, v = Operands(problem), packed(problem.v)
    values, out, lse = starts(v), starts(result.out), starts(result.lse)
    for unit in pieces(problem):
        job = unit.job(v_stride=v.stride(2), v_dim=v.shape[3], out_stride=result.out.stride(2))
        job.v, job.out = values(unit.batch, unit.head // problem.group), out(unit.batch, unit.head)
        job.out_lse = lse(unit.batch, unit.head)
        operands.give(job, unit)
        batch.add(task_of(job, unit, sums, keep=(operands, v)))
    return sums


def empty(problem: Problem, riders: Riders) -> Streamed:
    """Write the results of rows that see nothing; the kernels compute only the others."""
    shape = (problem.batch, problem.heads, problem.q_len)

    def rows(wanted: bool, fill: float = 0.0, dtype: torch.dtype = torch.float32) -> Tensor | None:
        return torch.full(shape, fill, dtype=dtype, device="cpu") if wanted else None

    extra = (
        None
        if riders.columns is None
        else torch.zeros(*shape, riders.columns.shape[-1], dtype=torch.float32, device="cpu")
    )
    return Streamed(
        # The memory layout of PyTorch's own kernel, which models expect next.
        out=torch.zeros(
            shape[0], shape[2], shape[1], problem.v.shape[-1], dtype=torch.float32, device="cpu"
        ).transpose(1, 2),
        lse=torch.full(shape, -torch.inf, dtype=torch.float32, device="cpu"),
        columns=extra,
        entropy=rows(riders.entropy),
        distance=rows(riders.distance),
        max_score=rows(riders.max_score, -torch.inf),
        argmax=rows(riders.max_score, -1, torch.int64),
    )


def _sums(problem: Problem, riders: Riders, result: Streamed) -> list[Sum]:
    frame = Frame(problem.batch, problem.heads, problem.q_len, problem.k_len)
    sums: list[Sum] = []
    if result.entropy is not None:
        sums.append(Entropies([EntropyFold(result.entropy)], frame))
    if result.distance is not None:
        sums.append(Distances([DistanceFold(result.distance)], frame))
    if result.max_score is not None and result.argmax is not None:
        sums.append(MaxScores([MaxScoreFold(result.max_score, result.argmax)], frame))
    if riders.columns is not None and result.columns is not None:
        sums.append(Mixes([MixFold(result.columns, _every_head(riders.columns, problem.group))], frame))
    return sums


def _every_head(columns: Tensor, group: int) -> Tensor:
    """Expand columns of key heads to query heads; columns that all heads share stay shared."""
    if columns.stride(1) == 0 or columns.shape[1] == 1:
        return columns[:, :1].expand(-1, columns.shape[1] * group, -1, -1)
    return columns.repeat_interleave(group, 1)
