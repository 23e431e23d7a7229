"""The second pass by GPU kernels: every fold of a map, in as few sweeps as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.lazy_zeros import LazyZeros
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.triton import hopper
from regard.engine.triton.decode import launch as decode
from regard.engine.triton.forward.launch import forward
from regard.engine.triton.second_pass.sweep import (
    SweepRequest,
    SweepResult,
    merge_blocks,
    pair_counts,
    sweep,
    top_keys,
)
from regard.stats import folds as kinds
from regard.stats.folds import Fold

__all__ = ["fold"]

Kind = TypeVar("Kind", bound=Fold)


def fold(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    folds: Sequence[Fold],
    streamed: Streamed | None = None,
    blank: LazyZeros | None = None,
) -> None:
    """Add every fold's sums to its target. What the forward returned is not computed again.

    Targets that are still uninitialised are overwritten.
    """
    streamed, blank = streamed or Streamed(problem.v, lse), blank or LazyZeros()
    fast = hopper.applicable(problem) and not decode.applicable(problem)
    max_scores, folds = _returned_max_scores(folds, streamed), _not_returned(folds, streamed, blank)
    _fold_rows(
        problem, [each for each in folds if max_scores is None or not isinstance(each, kinds.PeakFold)]
    )
    for each in folds:
        if isinstance(each, kinds.PairFold):
            _count(problem, each, blank)
        elif isinstance(each, kinds.MixFold):
            each.into.add_(_mixed(problem, lse, each))
        elif isinstance(each, kinds.TopFold):
            weight, key = top_keys(problem, lse, each.weight.shape[-1], streamed.tile_maxima)
            each.weight.copy_(weight)
            each.key.copy_(key)
    for question, members in _questions(folds):
        found = _swept(problem, lse, question, _room(problem, members) if fast else None, blank)
        for each in members:
            _deliver(each, found, blank)
    for each in folds:
        if max_scores is not None and isinstance(each, kinds.PeakFold):
            _deliver_max_scores(problem, each, *max_scores)


def _returned_max_scores(folds: Sequence[Fold], streamed: Streamed) -> tuple[Tensor, Tensor] | None:
    """The rows' largest scores if the forward returned them, and the tensor that will hold their keys."""
    heaviest = next((each.key[..., 0] for each in folds if isinstance(each, kinds.TopFold)), None)
    if streamed.top_key is not None:
        heaviest = streamed.top_key[..., 0]
    return None if heaviest is None or streamed.max_score is None else (streamed.max_score, heaviest)


def _deliver_max_scores(problem: Problem, each: kinds.PeakFold, peak: Tensor, heaviest: Tensor) -> None:
    """The argmax is the heaviest key, except in rows whose sink takes all weight."""
    if problem.sink is not None and ((heaviest < 0) & (peak > -torch.inf)).any():
        _fold_rows(problem, [each])
        return
    each.value.copy_(peak)
    each.key.copy_(heaviest)


def _not_returned(folds: Sequence[Fold], streamed: Streamed, blank: LazyZeros) -> list[Fold]:
    """The folds that are left after block maxima are taken from the forward."""
    left: list[Fold] = []
    for each in folds:
        if (
            isinstance(each, kinds.BlockFold)
            and each.tops is not None
            and streamed.block_maxima is not None
            and each.size % streamed.grain == 0
        ):
            parts = each.size // streamed.grain
            blank.clear(each.tops)
            merge_blocks(each.tops, streamed.block_maxima, (parts, parts), largest=True)
            each = replace(each, tops=None)
            if each.sums is None:
                continue
        left.append(each)
    return left


def _room(problem: Problem, folds: Sequence[Fold]) -> SweepResult:
    """Targets that a sweep can write to directly: those of the only fold that requests them."""
    room, maps = SweepResult(), (problem.batch, problem.heads)
    columns, diagonals = _only(kinds.ColumnFold, folds), _only(kinds.DiagonalFold, folds)
    blocks = _only(kinds.BlockFold, folds)
    if columns is not None and _is_whole(columns.into, (*maps, problem.k_len)):
        room.columns = columns.into
    if diagonals is not None and _is_whole(diagonals.into, (*maps, problem.q_len + problem.k_len - 1)):
        room.diagonals = diagonals.into
    if blocks is not None:
        room.pool_sums, room.pool_maxima = blocks.sums, blocks.tops
    return room


def _only(kind: type[Kind], folds: Sequence[Fold]) -> Kind | None:
    """The fold of a kind, if there is one and no other."""
    found = [each for each in folds if isinstance(each, kind)]
    return found[0] if len(found) == 1 else None


def _is_whole(x: Tensor, shape: tuple[int, ...]) -> bool:
    return x.shape == shape and x.dtype == torch.float32 and x.is_contiguous()


def _swept(
    problem: Problem, lse: Tensor, question: SweepRequest, room: SweepResult | None, blank: LazyZeros
) -> SweepResult:
    """Sweep with the Hopper kernel if `room` is given and the kernel can answer the question."""
    if room is None:
        return sweep(problem, lse, question)
    from regard.engine.triton.hopper.second_pass.sweep import can_sweep
    from regard.engine.triton.hopper.second_pass.sweep import sweep as hopper_sweep

    if can_sweep(question):
        return hopper_sweep(problem, lse, question, room, blank)
    return sweep(problem, lse, question)


def _fold_rows(problem: Problem, folds: Sequence[Fold]) -> None:
    """Entropy, distance and max scores ride in a forward pass over narrow values."""
    kinds_asked = {type(each) for each in folds}
    riders = Riders(
        entropy=kinds.EntropyFold in kinds_asked,
        distance=kinds.DistanceFold in kinds_asked,
        max_score=kinds.PeakFold in kinds_asked,
    )
    if riders == Riders():
        return
    found = forward(replace(problem, v=problem.k[..., :16]), riders, finite_values=True)
    for each in folds:
        if isinstance(each, kinds.EntropyFold) and found.entropy is not None:
            each.into.add_(found.entropy)
        elif isinstance(each, kinds.DistanceFold) and found.distance is not None:
            each.into.add_(found.distance)
        elif isinstance(each, kinds.PeakFold) and found.max_score is not None and found.argmax is not None:
            each.value.copy_(found.max_score)
            each.key.copy_(found.argmax)


def _mixed(
    problem: Problem, lse: Float[Tensor, "batch heads q"], each: kinds.MixFold
) -> Float[Tensor, "batch heads q extra"]:
    """Extra columns are mixed like values, in float32 so that their sums keep their precision.

    Keys after the last nonzero column are left out; exp(lse over the rest - lse over all) corrects for that.
    """
    last, columns = each.stop or _end(each.columns), each.columns
    scoring, bias = problem.scoring, problem.scoring.bias
    if isinstance(bias, Tensor) and bias.shape[3] > 1:
        scoring = replace(scoring, bias=bias[..., :last])
    k = problem.k[:, :, :last]
    k = k.repeat_interleave(problem.group, 1) if problem.group > 1 else k
    values = columns[:, :, :last].to(torch.float32).split(256, -1)
    part = replace(problem, k=k, v=values[0], scoring=scoring, sink=None)
    found = [forward(replace(part, v=some), Riders(), finite_values=True) for some in values]
    mass = (found[0].lse - lse.masked_fill(lse == -torch.inf, torch.inf)).exp()
    return torch.cat([each.out for each in found], -1) * mass[..., None]


def _end(columns: Float[Tensor, "batch heads k extra"]) -> int:
    """The stop of the keys with a nonzero column. This waits for the device."""
    used = (columns != 0).any(-1).flatten(0, 1).any(0).nonzero()
    return int(used[-1]) + 1 if len(used) else 1


def _count(problem: Problem, each: kinds.PairFold, blank: LazyZeros) -> None:
    if each.along == "diagonals":
        blank.add(each.into, pair_counts(problem, diagonal=True, skip=each.first))
        return
    columns = pair_counts(problem, diagonal=False)
    if each.along == "map":
        blank.add(each.into, columns.sum(-1, keepdim=True))
    else:
        blank.add(each.into, columns[..., each.first : each.first + each.into.shape[-1]])


def _questions(folds: Sequence[Fold]) -> list[tuple[SweepRequest, list[Fold]]]:
    """Group folds into sweeps: a sweep can answer one question of each kind."""
    sweeps: list[tuple[SweepRequest, list[Fold]]] = []
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


def _asked(each: Fold) -> SweepRequest | None:
    if isinstance(each, kinds.ColumnFold):
        return SweepRequest(columns=True, weights=each.rows)
    if isinstance(each, kinds.DiagonalFold):
        return SweepRequest(diagonals=True, skip=each.skip, past=each.past)
    if isinstance(each, kinds.BlockFold):
        sums, tops = each.sums is not None, each.tops is not None
        return SweepRequest(pool=each.size, pool_sums=sums, pool_maxima=tops)
    if isinstance(each, kinds.BinFold):
        return SweepRequest(borders=each.borders, of_score=each.of == "score")
    return None


def _joined(a: SweepRequest, b: SweepRequest) -> SweepRequest | None:
    """One question for two, or None if they ask for different things of the same kind."""
    both_columns = a.columns and b.columns and a.weights is not b.weights
    both_pools = a.pool and b.pool and a.pool != b.pool
    both_bins = a.borders and b.borders and (a.borders, a.of_score) != (b.borders, b.of_score)
    if a.skip != b.skip or both_columns or both_pools or both_bins:
        return None
    return SweepRequest(
        columns=a.columns or b.columns,
        weights=a.weights if a.weights is not None else b.weights,
        diagonals=a.diagonals or b.diagonals,
        skip=a.skip,
        past=all(each.past for each in (a, b) if each.diagonals),
        pool=a.pool or b.pool,
        pool_sums=a.pool_sums or b.pool_sums,
        pool_maxima=a.pool_maxima or b.pool_maxima,
        borders=a.borders or b.borders,
        of_score=a.of_score or b.of_score,
    )


def _deliver(each: Fold, found, blank: LazyZeros) -> None:
    """Add the result of a sweep to a fold's target, unless the sweep wrote there."""
    if isinstance(each, kinds.ColumnFold):
        if found.columns is not each.into:
            blank.add(each.into, found.columns[..., each.first : each.first + each.into.shape[-1]])
    elif isinstance(each, kinds.DiagonalFold):
        if found.diagonals is not each.into:
            blank.add(each.into, found.diagonals)
    elif isinstance(each, kinds.BlockFold):
        if each.sums is not None and found.pool_sums is not each.sums:
            blank.add(each.sums, found.pool_sums)
        if each.tops is not None and found.pool_maxima is not each.tops:
            blank.clear(each.tops)
            torch.maximum(each.tops, found.pool_maxima, out=each.tops)
    elif isinstance(each, kinds.BinFold):
        each.into[..., :-1] -= found.above
        each.into[..., 1:] += found.above
