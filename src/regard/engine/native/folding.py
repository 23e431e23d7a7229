"""The second pass by the native kernels: every fold of a map, distributed over threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.gemm import bmm
from regard.engine.library import Job, load
from regard.engine.native.diverging import compare
from regard.engine.native.grid import pieces
from regard.engine.native.pairs import count
from regard.engine.native.sums import KINDS, Sum, starts
from regard.engine.native.tasks import Batch, Operands, packed, task_of
from regard.engine.native.units import Span, Unit
from regard.engine.parts import parts
from regard.engine.problem import Problem
from regard.engine.schedule import chunks
from regard.errors import BackendError
from regard.stats import Frame
from regard.stats.folds import DiagonalFold, DivergenceFold, Fold, PairFold

__all__ = ["FEW", "can_fold", "computed", "fold", "passes"]

# The least number of rows: the kernels repack all keys first, which takes too long for fewer rows.
FEW = 4
# Scores per step of the torch path: 64 MiB.
SCORES = 1 << 24


def fold(problem: Problem, lse: Float[Tensor, "batch heads q"], frame: Frame, folds: Sequence[Fold]) -> None:
    """Fill all folds in one pass over the map, or in more if two folds of a kind have different parameters.

    Divergences between heads take a separate pass, which reads all heads at once.
    """
    library = load()
    if isinstance(library, str):
        raise BackendError(f"{library}; use torch operations.")
    count(problem, [each for each in folds if isinstance(each, PairFold)])
    # exp(s - inf) = 0: a dead row has weight nowhere.
    bound = lse.masked_fill(lse == -torch.inf, torch.inf).contiguous()
    compare(problem, bound, [each for each in folds if isinstance(each, DivergenceFold)], Batch(library))
    for skip, group in passes([each for each in folds if type(each) in KINDS]):
        sums = [KINDS[kind](members, frame) for kind, members in group.items()]
        batch = Batch(library)
        _way(problem)(problem, bound, sums, skip, batch)
        batch.finish()
        for each in sums:
            each.deliver()


def can_fold(folds: Sequence[Fold]) -> bool:
    """Whether the kernels know all of these folds."""
    return all(isinstance(each, PairFold | DivergenceFold) or type(each) in KINDS for each in folds)


def passes(folds: Sequence[Fold]) -> list[tuple[int, dict[type, list[Any]]]]:
    """Group folds into passes. A pass starts at one key, and has one slot per type of fold."""
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


def _way(problem: Problem) -> Callable[[Problem, Tensor, Sequence[Sum], int, Batch], None]:
    if not problem.scoring.linear:
        return _given
    return _few if problem.q_len < FEW else computed


def _few(problem: Problem, bound: Tensor, sums: Sequence[Sum], skip: int, batch: Batch) -> None:
    """A decode step: one matrix product computes the scores of some batch rows, and the kernel reads them."""
    p, lse = problem, starts(bound)
    at_once = max(1, SCORES // (p.heads * p.q_len * p.k_len))
    for rows in chunks(range(p.batch), at_once):
        q, k = (packed(x[rows.start : rows.stop]) for x in (p.q, p.k))
        stacks = q.reshape(-1, p.group * p.q_len, q.shape[3]) * p.scoring.scale
        scores = bmm(stacks, k.flatten(0, 1).mT).view(len(q), p.heads, p.q_len, p.k_len)
        start = starts(scores)
        for unit in pieces(p, skip, rows):
            job = unit.job(scores=start(unit.batch - rows.start, unit.head), scores_stride=scores.stride(2))
            job.lse = lse(unit.batch, unit.head)
            batch.add(task_of(job, unit, sums, keep=scores))
        batch.finish()


def computed(problem: Problem, bound: Tensor, sums: Sequence[Sum], skip: int, batch: Batch) -> None:
    """For plain dot products: the kernel computes the scores."""
    operands, lse = Operands(problem), starts(bound)
    for unit in pieces(problem, skip):
        job = unit.job(lse=lse(unit.batch, unit.head))
        operands.give(job, unit)
        batch.add(task_of(job, unit, sums, keep=operands))


def _given(problem: Problem, bound: Tensor, sums: Sequence[Sum], skip: int, batch: Batch) -> None:
    """For other scores: torch operations compute and mask them, a tile at a time."""
    lse = starts(bound)
    for part in parts(problem):
        k = part.keys(problem.k)
        for row in part.rows():
            q = part.scaled(part.queries(problem.q, row.queries))
            # The kernel needs keys in rising order.
            for tile in sorted(part.tiles(row), key=lambda tile: tile.keys.start):
                keys = range(max(skip, tile.keys.start), tile.keys.stop)
                if not keys:
                    continue
                scores = part.four(part.scores(q, k[:, tile.keys.start : tile.keys.stop], tile))
                start = starts(scores)
                for at in product(range(len(part.batch)), range(len(part.heads))):
                    unit = Unit(part.batch[at[0]], part.heads[at[1]], row.queries, (Span(keys),))
                    job = Job(scores=start(*at), scores_stride=scores.stride(2))
                    job.scores_first, job.lse = tile.keys.start, lse(unit.batch, unit.head)
                    batch.add(task_of(job, unit, sums, keep=scores))
                # The next tile adds to the same rows.
                batch.finish()
