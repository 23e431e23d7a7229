"""The second pass by GPU kernels: every fold of a map, in as few sweeps as the questions allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders
from regard.engine.triton.forward import forward
from regard.engine.triton.survey import Question, counts, survey, top_keys
from regard.stats import folds as kinds
from regard.stats.folds import Fold

__all__ = ["fold"]


def fold(problem: Problem, lse: Float[Tensor, "batch heads q"], folds: Sequence[Fold]) -> None:
    """Add what every fold asks for to where it goes."""
    _fold_rows(problem, folds)
    for each in folds:
        if isinstance(each, kinds.PairFold):
            _count(problem, each)
        elif isinstance(each, kinds.MixFold):
            each.into.add_(_mixed(problem, lse, each.columns))
        elif isinstance(each, kinds.TopFold):
            weight, key = top_keys(problem, lse, each.weight.shape[-1])
            each.weight.copy_(weight)
            each.key.copy_(key)
    for question, members in _questions(folds):
        found = survey(problem, lse, question)
        for each in members:
            _deliver(each, found)


def _fold_rows(problem: Problem, folds: Sequence[Fold]) -> None:
    """Entropy, distance and peaks ride in a forward pass with next to no values."""
    kinds_asked = {type(each) for each in folds}
    riders = Riders(
        entropy=kinds.EntropyFold in kinds_asked,
        distance=kinds.DistanceFold in kinds_asked,
        peak=kinds.PeakFold in kinds_asked,
    )
    if riders == Riders():
        return
    found = forward(replace(problem, v=problem.k[..., :16]), riders, tidy=True)
    for each in folds:
        if isinstance(each, kinds.EntropyFold) and found.entropy is not None:
            each.into.add_(found.entropy)
        elif isinstance(each, kinds.DistanceFold) and found.distance is not None:
            each.into.add_(found.distance)
        elif isinstance(each, kinds.PeakFold) and found.peak is not None and found.peak_key is not None:
            each.value.copy_(found.peak)
            each.key.copy_(found.peak_key)


def _mixed(
    problem: Problem, lse: Float[Tensor, "batch heads q"], columns: Float[Tensor, "batch heads k extra"]
) -> Float[Tensor, "batch heads q extra"]:
    """Extra columns are values like any others; in float32, so that their sums keep their digits.

    Keys after the last with a value are left out: exp(lse over the rest - lse over all) says what that does.
    """
    k = problem.k.repeat_interleave(problem.group, 1) if problem.group > 1 else problem.k
    used = (columns != 0).any(-1).flatten(0, 1).any(0).nonzero()
    last = int(used[-1]) + 1 if len(used) else 1
    scoring, bias = problem.scoring, problem.scoring.bias
    if isinstance(bias, Tensor) and bias.shape[3] > 1:
        scoring = replace(scoring, bias=bias[..., :last])
    values = columns[:, :, :last].to(torch.float32).split(256, -1)
    part = replace(problem, k=k[:, :, :last], v=values[0], scoring=scoring, sink=None)
    found = [forward(replace(part, v=some), Riders(), tidy=True) for some in values]
    mass = (found[0].lse - lse.masked_fill(lse == -torch.inf, torch.inf)).exp()
    return torch.cat([each.out for each in found], -1) * mass[..., None]


def _count(problem: Problem, each: kinds.PairFold) -> None:
    if each.along == "diagonals":
        each.into.add_(counts(problem, diagonal=True, skip=each.first))
        return
    columns = counts(problem, diagonal=False)
    if each.along == "map":
        each.into.add_(columns.sum(-1, keepdim=True))
    else:
        each.into.add_(columns[..., each.first : each.first + each.into.shape[-1]])


def _questions(folds: Sequence[Fold]) -> list[tuple[Question, list[Fold]]]:
    """Folds that one sweep answers together: a sweep has one place for each kind of question."""
    sweeps: list[tuple[Question, list[Fold]]] = []
    for each in folds:
        asked = _asked(each)
        if asked is None:
            continue
        for index, (question, members) in enumerate(sweeps):
            joined = _joined(question, asked)
            if joined is not None:
                sweeps[index] = (joined, [*members, each])
                break
        else:
            sweeps.append((asked, [each]))
    return sweeps


def _asked(each: Fold) -> Question | None:
    if isinstance(each, kinds.ColumnFold):
        return Question(columns=True, weights=each.rows)
    if isinstance(each, kinds.DiagonalFold):
        return Question(diagonals=True, skip=each.skip)
    if isinstance(each, kinds.BlockFold):
        sums, tops = each.sums is not None, each.tops is not None
        return Question(pool=each.size, pool_sums=sums, pool_maxima=tops)
    if isinstance(each, kinds.BinFold):
        return Question(borders=each.borders, of_score=each.of == "score")
    return None


def _joined(a: Question, b: Question) -> Question | None:
    """One question for two, or None where they differ in what a sweep can only do one way."""
    both_columns = a.columns and b.columns and a.weights is not b.weights
    both_pools = a.pool and b.pool and a.pool != b.pool
    both_bins = a.borders and b.borders and (a.borders, a.of_score) != (b.borders, b.of_score)
    if a.skip != b.skip or both_columns or both_pools or both_bins:
        return None
    return Question(
        columns=a.columns or b.columns,
        weights=a.weights if a.weights is not None else b.weights,
        diagonals=a.diagonals or b.diagonals,
        skip=a.skip,
        pool=a.pool or b.pool,
        pool_sums=a.pool_sums or b.pool_sums,
        pool_maxima=a.pool_maxima or b.pool_maxima,
        borders=a.borders or b.borders,
        of_score=a.of_score or b.of_score,
    )


def _deliver(each: Fold, found) -> None:
    if isinstance(each, kinds.ColumnFold):
        each.into.add_(found.columns[..., each.first : each.first + each.into.shape[-1]])
    elif isinstance(each, kinds.DiagonalFold):
        each.into.add_(found.diagonals)
    elif isinstance(each, kinds.BlockFold):
        if each.sums is not None:
            each.sums.add_(found.pool_sums)
        if each.tops is not None:
            torch.maximum(each.tops, found.pool_maxima, out=each.tops)
    elif isinstance(each, kinds.BinFold):
        each.into[..., :-1] -= found.above
        each.into[..., 1:] += found.above
