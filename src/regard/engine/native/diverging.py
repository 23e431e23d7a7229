"""Divergence between heads by the native kernels, which read all heads of some rows at once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import torch
from torch import Tensor

from regard.engine.library import Job
from regard.engine.native.sums import Share, starts
from regard.engine.native.tasks import Batch, Operands, Task
from regard.engine.native.units import Span, Unit, units
from regard.engine.parts import parts
from regard.engine.problem import Problem
from regard.engine.schedule import chunks
from regard.stats.folds import DivergenceFold

__all__ = ["compare"]

# Rows compared by one task, over all heads at once.
ROWS = 128


def compare(problem: Problem, bound: Tensor, folds: Sequence[DivergenceFold], batch: Batch) -> None:
    """Fill the folds, in a separate pass."""
    if not folds:
        return
    shape = (problem.batch, problem.heads)
    mass = torch.zeros(*shape, problem.q_len, dtype=torch.float32, device="cpu")
    sums = torch.zeros(*shape, problem.heads, dtype=torch.float64, device="cpu")
    lse_at, mass_at = starts(bound), starts(mass)
    for members in (_computed if problem.scoring.linear else _given)(problem, batch):
        for unit, job in members.jobs:
            job.lse, job.mass = lse_at(unit.batch, unit.head), mass_at(unit.batch, unit.head)
        batch.add(_task(members, sums))
    batch.finish()
    for fold in folds:
        fold.into.add_(sums)
        fold.mass.add_(mass)


@dataclass(frozen=True)
class _Members:
    """The same rows of every head, each with the job that reads it."""

    jobs: list[tuple[Unit, Job]]
    keep: Any


def _task(members: _Members, sums: Tensor) -> Task:
    runs = [unit.visit(job) for unit, job in members.jobs]
    pointers = (ctypes.POINTER(Job) * len(runs))(*(ctypes.pointer(job) for _, job in members.jobs))
    unit = members.jobs[0][0]
    home = sums[unit.batch]
    own = torch.zeros_like(home)
    job = Job(members=ctypes.addressof(pointers), n_members=len(runs), divergence=own.data_ptr())
    job.row_start, job.row_stop = unit.rows.start, unit.rows.stop
    length = max(len(unit.keys) for unit, _ in members.jobs if unit.spans)
    return Task(job, length, [Share(own, home)], keep=(members, runs, pointers))


def _computed(problem: Problem, batch: Batch) -> Iterator[_Members]:
    """Scores are plain dot products: the kernel makes them."""
    operands = Operands(problem)
    for _, same_rows in groupby(units(problem, rows=ROWS), key=lambda unit: (unit.batch, unit.rows)):
        seen = {unit.head: unit for unit in same_rows}
        some = next(iter(seen.values()))
        jobs = []
        for head in range(problem.heads):
            # Include heads that see nothing: they count as dead heads in the comparison.
            unit, job = seen.get(head, Unit(some.batch, head, some.rows, ())), Job()
            operands.give(job, unit)
            jobs.append((unit, job))
        yield _Members(jobs, operands)


def _given(problem: Problem, batch: Batch) -> Iterator[_Members]:
    """Scores are made by torch operations, and masked, a tile at a time."""
    for part in parts(problem, all_heads=True):
        k = part.keys(problem.k)
        for row in part.rows():
            q = part.scaled(part.queries(problem.q, row.queries))
            for tile in part.tiles(row):
                scores = part.four(part.scores(q, k[:, tile.keys.start : tile.keys.stop], tile))
                for at, rows in product(range(len(part.batch)), chunks(row.queries, ROWS // 4)):
                    jobs = []
                    for head in part.heads:
                        some = scores[at, head, rows.start - row.queries.start :]
                        job = Job(scores=some.data_ptr(), scores_stride=some.stride(0))
                        job.scores_first = tile.keys.start
                        jobs.append((Unit(part.batch[at], head, rows, (Span(tile.keys),)), job))
                    yield _Members(jobs, scores)
                # The next tile adds to the same rows.
                batch.finish()
