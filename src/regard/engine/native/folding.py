"""The second pass by the native kernels: every fold of a map, its pieces shared out over threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.native.library import Job, Library, Run, load
from regard.engine.native.pairs import count
from regard.engine.native.sums import KINDS, Sum
from regard.engine.native.units import Span, Unit, units
from regard.engine.parts import parts
from regard.engine.problem import Problem
from regard.errors import BackendError
from regard.stats import Frame
from regard.stats.folds import DiagonalFold, Fold, PairFold

__all__ = ["fold"]

# So many pieces per thread are done together: enough that no thread waits long for the last.
AT_ONCE = 32
# Numbers that the pieces done together may collect.
ROOM = 1 << 23


def fold(problem: Problem, lse: Float[Tensor, "batch heads q"], frame: Frame, folds: Sequence[Fold]) -> None:
    """Fill all folds, in one pass over the map, or more where two of a kind ask for different things."""
    library = load()
    if isinstance(library, str):
        raise BackendError(f"{library}; use torch operations.")
    count(problem, [each for each in folds if isinstance(each, PairFold)])
    # exp(s - inf) = 0: a dead row has weight nowhere.
    bound = lse.masked_fill(lse == -torch.inf, torch.inf).contiguous()
    for skip, group in _passes([each for each in folds if not isinstance(each, PairFold)]):
        sums = [KINDS[kind](members, frame) for kind, members in group.items()]
        work = _given if not problem.scoring.linear else _computed
        batch = _Batch(library)
        work(problem, bound, sums, skip, batch)
        batch.finish()
        for each in sums:
            each.deliver()


def _passes(folds: Sequence[Fold]) -> list[tuple[int, dict[type, list[Any]]]]:
    """Folds that one pass can do together. A pass begins at one key, and has one place for each kind."""
    passes: list[tuple[int, dict[type, list[Any]]]] = []
    for each in folds:
        skip = each.skip if isinstance(each, DiagonalFold) else 0
        for first, group in passes:
            others = group.get(type(each), [])
            if first == skip and all(other.about == each.about for other in others):
                group[type(each)] = [*others, each]
                break
        else:
            passes.append((skip, {type(each): [each]}))
    return passes


def _computed(problem: Problem, bound: Tensor, sums: Sequence[Sum], skip: int, batch: _Batch) -> None:
    """Scores are plain dot products: the kernel makes them."""
    all_q, all_k = _packed(problem.q), _packed(problem.k)
    for unit in units(problem, skip):
        q, k = all_q[unit.batch, unit.head], all_k[unit.batch, unit.head // problem.group]
        job = Job(q=q.data_ptr(), k=k.data_ptr(), scale=problem.scoring.scale)
        job.q_stride, job.k_stride, job.dim = q.stride(0), k.stride(0), q.shape[-1]
        batch.add(_Task(job, unit, bound, sums, keep=(q, k)))


def _given(problem: Problem, bound: Tensor, sums: Sequence[Sum], skip: int, batch: _Batch) -> None:
    """Scores are made by torch operations, and masked, a tile at a time."""
    for part in parts(problem):
        k = part.keys(problem.k)
        for row in part.rows():
            q = part.scaled(part.queries(problem.q, row.queries))
            # Keys must come in rising order.
            for tile in sorted(part.tiles(row), key=lambda tile: tile.keys.start):
                keys = range(max(skip, tile.keys.start), tile.keys.stop)
                if not keys:
                    continue
                scores = part.four(part.scores(q, k[:, tile.keys.start : tile.keys.stop], tile))
                for at in product(range(len(part.batch)), range(len(part.heads))):
                    unit = Unit(part.batch[at[0]], part.heads[at[1]], row.queries, (Span(keys),))
                    job = Job(scores=scores[at].data_ptr(), scores_stride=scores.stride(2))
                    job.scores_first = tile.keys.start
                    batch.add(_Task(job, unit, bound, sums, keep=(scores,)))
                # The next tile adds to the same rows.
                batch.finish()


class _Task:
    """One call of the kernel, with everything its pointers point at."""

    def __init__(self, job: Job, unit: Unit, bound: Tensor, sums: Sequence[Sum], keep: tuple) -> None:
        self.job, self.unit, self.keep = job, unit, keep
        self.runs = (Run * len(unit.spans))(*map(_run, unit.spans))
        job.runs, job.n_runs = ctypes.addressof(self.runs), len(unit.spans)
        job.row_start, job.row_stop = unit.rows.start, unit.rows.stop
        job.lse = bound[unit.batch, unit.head].data_ptr()
        if unit.low is not None and unit.high is not None:
            job.low, job.high = unit.low.data_ptr(), unit.high.data_ptr()
        self.shares = [share for each in sums for share in each.aim(job, unit)]


def _run(span: Span) -> Run:
    if span.allowed is None:
        return Run(span.keys.start, span.keys.stop, None, 0)
    return Run(span.keys.start, span.keys.stop, span.allowed.data_ptr(), span.allowed.stride(0))


class _Batch:
    """Tasks done together by as many threads as PyTorch uses, and added up in order, whoever is first."""

    def __init__(self, library: Library) -> None:
        self.library, self.threads = library, torch.get_num_threads()
        self.tasks: list[_Task] = []
        self.room = ROOM

    def add(self, task: _Task) -> None:
        """Take in a task; when enough have come together they are done."""
        self.tasks.append(task)
        self.room -= sum(share.own.numel() for share in task.shares)
        if len(self.tasks) >= AT_ONCE * self.threads or self.room < 0:
            self.finish()

    def finish(self) -> None:
        """Do all tasks that have not been done."""
        tasks, self.tasks, self.room = self.tasks, [], ROOM
        # Long ones first: then no thread is left alone with one at the end.
        by_length = sorted(tasks, key=lambda task: len(task.unit.keys), reverse=True)
        self.library.fold([task.job for task in by_length], self.threads)
        for task in tasks:
            for share in task.shares:
                share.bring_home()


def _packed(x: Tensor) -> Tensor:
    """Rows the kernel can read: float32, each row's numbers side by side."""
    x = x.detach().to(torch.float32)
    return x if x.stride(-1) == 1 else x.contiguous()
