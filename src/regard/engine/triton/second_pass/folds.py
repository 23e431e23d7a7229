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
from regard.engine.triton.head_sums.launch import divergence_sums, shared_keys
from regard.engine.triton.second_pass.pair_counts import pair_counts
from regard.engine.triton.second_pass.sweep import (
    SweepRequest,
    SweepResult,
    merge_blocks,
    sweep,
    top_keys,
)
from regard.stats.folds import (
    BinFold,
    BlockFold,
    ColumnFold,
    ColumnMaxFold,
    DiagonalFold,
    DistanceFold,
    EntropyFold,
    Fold,
    HeadSumFold,
    KLFold,
    MaxScoreFold,
    MixFold,
    PairFold,
    TopKeysFold,
)

__all__ = ["fold"]

Kind = TypeVar("Kind", bound=Fold)


def fold(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    folds: Sequence[Fold],
    streamed: Streamed | None = None,
    lazy_zeros: LazyZeros | None = None,
) -> None:
    """Add every fold's sums to its target, or overwrite a target that is still uninitialised.

    Results that the forward returned, `streamed`, are not computed again.
    """
    streamed, lazy_zeros = streamed or Streamed(problem.v, lse), lazy_zeros or LazyZeros()
    fast = hopper.applicable(problem) and not decode.applicable(problem)
    max_scores, folds = (
        _returned_max_scores(folds, streamed),
        _without_returned_maxima(folds, streamed, lazy_zeros),
    )
    _fold_rows(problem, [each for each in folds if max_scores is None or not isinstance(each, MaxScoreFold)])
    for each in folds:
        if isinstance(each, PairFold):
            _count(problem, each, lazy_zeros)
        elif isinstance(each, MixFold):
            each.into.add_(_mixed_columns(problem, lse, each))
        elif isinstance(each, TopKeysFold):
            weight, key = top_keys(problem, lse, each.weight.shape[-1], streamed.tile_maxima)
            each.weight.copy_(weight)
            each.key.copy_(key)
        elif isinstance(each, HeadSumFold):
            weight, key = shared_keys(problem, lse, each.weight.shape[-1])
            each.weight.copy_(weight)
            each.key.copy_(key)
        elif isinstance(each, KLFold):
            _add_divergence(each, divergence_sums(problem, lse, each.student))
    for request, members in _group_into_sweeps(folds, fast):
        found = _sweep(problem, lse, request, _direct_targets(problem, members) if fast else None, lazy_zeros)
        for each in members:
            _add_to_target(each, found, lazy_zeros)
    for each in folds:
        if max_scores is not None and isinstance(each, MaxScoreFold):
            _store_max_scores(problem, each, *max_scores)


def _returned_max_scores(folds: Sequence[Fold], streamed: Streamed) -> tuple[Tensor, Tensor] | None:
    """The rows' largest scores, if the forward returned them, and the tensor that will hold their keys."""
    heaviest = next((each.key[..., 0] for each in folds if isinstance(each, TopKeysFold)), None)
    if streamed.top_key is not None:
        heaviest = streamed.top_key[..., 0]
    return None if heaviest is None or streamed.max_score is None else (streamed.max_score, heaviest)


def _store_max_scores(problem: Problem, each: MaxScoreFold, peak: Tensor, heaviest: Tensor) -> None:
    """Fill a fold from the forward: the argmax is the heaviest key, unless a sink takes all weight of a
    row."""
    if problem.sink is not None and ((heaviest < 0) & (peak > -torch.inf)).any():
        _fold_rows(problem, [each])
        return
    each.value.copy_(peak)
    each.key.copy_(heaviest)


def _without_returned_maxima(folds: Sequence[Fold], streamed: Streamed, lazy_zeros: LazyZeros) -> list[Fold]:
    """Take block maxima from the forward if it returned them; returns the folds that are left."""
    left: list[Fold] = []
    for each in folds:
        if (
            isinstance(each, BlockFold)
            and each.maxima is not None
            and streamed.block_maxima is not None
            and each.size % streamed.grain == 0
        ):
            parts = each.size // streamed.grain
            lazy_zeros.clear(each.maxima)
            merge_blocks(each.maxima, streamed.block_maxima, (parts, parts), largest=True)
            each = replace(each, maxima=None)
            if each.sums is None:
                continue
        left.append(each)
    return left


def _direct_targets(problem: Problem, folds: Sequence[Fold]) -> SweepResult:
    """Targets that a sweep can write to directly: those of the only fold that requests them."""
    targets, maps = SweepResult(), (problem.batch, problem.heads)
    columns, diagonals = _single(ColumnFold, folds), _single(DiagonalFold, folds)
    blocks = _single(BlockFold, folds)
    if columns is not None and _is_whole(columns.into, (*maps, problem.k_len)):
        targets.columns = columns.into
    if diagonals is not None and _is_whole(diagonals.into, (*maps, problem.q_len + problem.k_len - 1)):
        targets.diagonals = diagonals.into
    if blocks is not None:
        targets.pool_sums, targets.pool_maxima = blocks.sums, blocks.maxima
    return targets


def _single(kind: type[Kind], folds: Sequence[Fold]) -> Kind | None:
    """The fold of a type, if there is exactly one."""
    found = [each for each in folds if isinstance(each, kind)]
    return found[0] if len(found) == 1 else None


def _is_whole(x: Tensor, shape: tuple[int, ...]) -> bool:
    return x.shape == shape and x.dtype == torch.float32 and x.is_contiguous()


def _sweep(
    problem: Problem, lse: Tensor, request: SweepRequest, targets: SweepResult | None, lazy_zeros: LazyZeros
) -> SweepResult:
    """Sweep with the Hopper kernel if `targets` is given and the kernel can answer the request."""
    if targets is None:
        return sweep(problem, lse, request)
    from regard.engine.triton.hopper.second_pass.sweep import can_sweep
    from regard.engine.triton.hopper.second_pass.sweep import sweep as hopper_sweep

    if can_sweep(request):
        return hopper_sweep(problem, lse, request, targets, lazy_zeros)
    return sweep(problem, lse, request)


def _fold_rows(problem: Problem, folds: Sequence[Fold]) -> None:
    """Compute entropy, distance and max scores in a forward pass over narrow values."""
    types = {type(each) for each in folds}
    riders = Riders(
        entropy=EntropyFold in types, distance=DistanceFold in types, max_score=MaxScoreFold in types
    )
    if riders == Riders():
        return
    found = forward(replace(problem, v=problem.k[..., :16]), riders, finite_values=True)
    for each in folds:
        if isinstance(each, EntropyFold) and found.entropy is not None:
            each.into.add_(found.entropy)
        elif isinstance(each, DistanceFold) and found.distance is not None:
            each.into.add_(found.distance)
        elif isinstance(each, MaxScoreFold) and found.max_score is not None and found.argmax is not None:
            each.value.copy_(found.max_score)
            each.key.copy_(found.argmax)


def _mixed_columns(
    problem: Problem, lse: Float[Tensor, "batch heads q"], each: MixFold
) -> Float[Tensor, "batch heads q extra"]:
    """Mix extra columns like values, in float32 so that their sums keep their precision.

    Keys after the last nonzero column are left out; exp(lse over the rest - lse over all) corrects for that.
    """
    last, columns = each.stop or _nonzero_stop(each.columns), each.columns
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


def _add_divergence(each: KLFold, parts: Float[Tensor, "sums parts batch q"]) -> None:
    """Add the parts of a KL's sums; exponentials are relative to the largest score of their part."""
    mass, logs, cross, exps, tops = parts.unbind(0)
    top = torch.maximum(each.top, tops.amax(0))
    finite = top.masked_fill(top == -torch.inf, 0.0)
    each.sum.mul_((each.top - finite).exp()).add_((exps * (tops - finite).exp()).sum(0))
    each.top.copy_(top)
    for into, more in ((each.mass, mass), (each.logs, logs), (each.cross, cross)):
        into.add_(more.sum(0))


def _nonzero_stop(columns: Float[Tensor, "batch heads k extra"]) -> int:
    """The stop of the keys with a nonzero column. This waits for the device."""
    used = (columns != 0).any(-1).flatten(0, 1).any(0).nonzero()
    return int(used[-1]) + 1 if len(used) else 1


def _count(problem: Problem, each: PairFold, lazy_zeros: LazyZeros) -> None:
    if each.along == "diagonals":
        lazy_zeros.add(each.into, pair_counts(problem, diagonal=True, skip=each.first))
        return
    columns = pair_counts(problem, diagonal=False)
    if each.along == "map":
        lazy_zeros.add(each.into, columns.sum(-1, keepdim=True))
    else:
        lazy_zeros.add(each.into, columns[..., each.first : each.first + each.into.shape[-1]])


def _group_into_sweeps(folds: Sequence[Fold], fast: bool) -> list[tuple[SweepRequest, list[Fold]]]:
    """Group folds into sweeps: one sweep can fill one fold of each type.

    Where a `fast` kernel answers the other requests, column maxima, which it does not know, are swept alone.
    """
    sweeps: list[tuple[SweepRequest, list[Fold]]] = []
    for each in folds:
        request = _request_of(each)
        if request is None:
            continue
        for index, (earlier, members) in enumerate(sweeps):
            merged = _merged(earlier, request, fast)
            if merged is not None:
                sweeps[index] = (merged, [*members, each])
                break
        else:
            sweeps.append((request, [each]))
    return sweeps


def _request_of(each: Fold) -> SweepRequest | None:
    if isinstance(each, ColumnFold):
        return SweepRequest(columns=True, weights=each.rows)
    if isinstance(each, ColumnMaxFold):
        return SweepRequest(column_maxima=True)
    if isinstance(each, DiagonalFold):
        return SweepRequest(diagonals=True, skip=each.skip, past=each.past)
    if isinstance(each, BlockFold):
        sums, maxima = each.sums is not None, each.maxima is not None
        return SweepRequest(pool=each.size, pool_sums=sums, pool_maxima=maxima)
    if isinstance(each, BinFold):
        return SweepRequest(borders=each.borders, of_score=each.of == "score")
    return None


def _merged(a: SweepRequest, b: SweepRequest, fast: bool) -> SweepRequest | None:
    """One request for two, or None if they differ in the settings of a result that both want."""
    both_columns = a.columns and b.columns and a.weights is not b.weights
    both_pools = a.pool and b.pool and a.pool != b.pool
    both_bins = a.borders and b.borders and (a.borders, a.of_score) != (b.borders, b.of_score)
    alone = a.column_maxima != b.column_maxima and (fast or a.diagonals or b.diagonals)
    if alone or a.skip != b.skip or both_columns or both_pools or both_bins:
        return None
    return SweepRequest(
        columns=a.columns or b.columns,
        column_maxima=a.column_maxima or b.column_maxima,
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


def _add_to_target(each: Fold, found, lazy_zeros: LazyZeros) -> None:
    """Add the result of a sweep to a fold's target, unless the sweep wrote there."""
    if isinstance(each, ColumnFold):
        if found.columns is not each.into:
            lazy_zeros.add(each.into, found.columns[..., each.first : each.first + each.into.shape[-1]])
    elif isinstance(each, ColumnMaxFold):
        torch.maximum(each.into, found.column_maxima, out=each.into)
    elif isinstance(each, DiagonalFold):
        if found.diagonals is not each.into:
            lazy_zeros.add(each.into, found.diagonals)
    elif isinstance(each, BlockFold):
        if each.sums is not None and found.pool_sums is not each.sums:
            lazy_zeros.add(each.sums, found.pool_sums)
        if each.maxima is not None and found.pool_maxima is not each.maxima:
            lazy_zeros.clear(each.maxima)
            torch.maximum(each.maxima, found.pool_maxima, out=each.maxima)
    elif isinstance(each, BinFold):
        each.into[..., :-1] -= found.above
        each.into[..., 1:] += found.above
