"""Launches the fused forward, and the small kernels that complete its statistics."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.triton import hopper
from regard.engine.triton.configs import Config
from regard.engine.triton.forward.kernel import argmax_kernel, first_weight_kernel, forward_kernel
from regard.engine.triton.forward.tile_maxima import TileMaxima, tile_maxima_arguments
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import intervals
from regard.engine.triton.support import MAX_FUSED_TOP_KEYS

__all__ = ["forward"]

# Classes of keys in a tile; the forward returns the tile of each class maximum.
CLASSES = 16
ARGMAX_ROWS, FIRST_ROWS = 32, 32
# The number of leading keys that the portable kernel scores again in recomputed blocks, to sum their weight.
FIRST_KEYS = 16
# The portable kernel rarely recomputes a block of the Hopper kernel, but is always compiled for it.
# Processing a quarter of a tile at a time shortens the compilation to a third.
PARTS = 4
# Blocks of queries per program of a CAREFUL launch.
REDO_BLOCKS = 8


def forward(problem: Problem, riders: Riders, finite_values: bool = False) -> Streamed:
    """Output, log-sum-exp and the requested riders: entropy, distance, the largest score and its key, the
    weight of the first keys.

    `finite_values` skips the check for garbage: the values are known to be finite, or the output is unused.
    """
    operands = Operands(problem)
    by_hopper = hopper.applicable(problem)
    riders = _supported(riders, by_hopper)
    # The portable kernel recomputes dirty blocks of the Hopper kernel, so both must use the same blocks.
    cut = operands.config("rows" if by_hopper or riders.max_score or riders.distance else "forward")
    result = _empty(problem, riders)
    rows, blocks = result.lse.shape, -(-problem.q_len // cut.block_q)
    # A block is dirty if there is garbage behind a mask; on Hopper also if its scores are immense.
    careful = by_hopper or (problem.mask is not None and not finite_values)
    dirty = (torch.zeros if careful else torch.empty)(
        (*rows[:2], blocks), dtype=torch.int32, device=result.lse.device
    )
    # The Hopper kernel returns the argmax key of a row or its tile, the portable one the tile of each class.
    finds_argmax = by_hopper and riders.needs_argmax and hopper.finds_argmax(problem)
    classes = 0 if finds_argmax else 1 if by_hopper else CLASSES
    argmax, tiles = dirty, None
    if finds_argmax and result.argmax is not None:
        argmax = result.argmax
    elif riders.needs_argmax:
        argmax = tiles = torch.empty(*rows, classes, dtype=torch.int32, device=dirty.device)
    run = partial(_launch, operands, cut, riders, result, argmax, dirty, classes)
    first = riders.first
    if by_hopper:
        from regard.engine.triton.hopper.forward.launch import launch, returns_first_weight

        early = first if returns_first_weight(riders, finds_argmax) else 0
        redo = partial(run, careful=True, early=early, parts=PARTS)
        launch(operands, riders, result, argmax, dirty, early, redo)
        first -= early
    else:
        run(careful=False)
        if careful:
            run(careful=True)
    _second_look(operands, cut, first, result, tiles, by_hopper)
    return result


def _second_look(
    operands: Operands, cut: Config, first: int, result: Streamed, tiles: Tensor | None, by_hopper: bool
) -> None:
    """Complete the statistics of a forward pass: search the given tiles for the argmax keys, and sum the
    weight of the `first` keys, if there are any."""
    if by_hopper and tiles is not None:
        from regard.engine.triton.hopper.argmax.launch import MAX_FIRST_KEYS, find_argmax

        some = first if first <= MAX_FIRST_KEYS else 0
        find_argmax(operands, tiles, result, some, cut.block_k)
        if some:
            return
    elif tiles is not None and result.argmax is not None:
        _find_argmax(operands, cut, tiles, result.argmax)
    if first and result.first is not None:
        _sum_first_weight(operands, result.lse, result.first, first)


def _launch(
    operands: Operands,
    cut: Config,
    riders: Riders,
    result: Streamed,
    argmax: Tensor,
    dirty: Tensor,
    classes: int,
    tile_maxima: TileMaxima | None = None,
    *,
    careful: bool,
    early: int = 0,
    parts: int = 1,
) -> None:
    problem, unused = operands.problem, result.lse
    table = operands.plan(cut.blocks)
    start(
        forward_kernel,
        (-(-table.q_blocks // (REDO_BLOCKS if careful else 1)), problem.heads, problem.batch),
        # Don't build descriptors for a launch that rarely has a block to recompute.
        **operands.pairs(cut, engine=not careful),
        **operands.values(cut, engine=not careful),
        **operands.sizes,
        **operands.scoring,
        **operands.visits(table, table.by_query),
        **cut.options,
        **tile_maxima_arguments(tile_maxima, unused),
        ORDER=table.by_query.order,
        OUT=result.out,
        LSE=result.lse,
        ENTROPY=unused if result.entropy is None else result.entropy,
        DISTANCE=unused if result.distance is None else result.distance,
        MAX_SCORE=unused if result.max_score is None else result.max_score,
        ARGMAX=argmax,
        FIRST_WEIGHT=unused if result.first is None else result.first,
        SINK=unused if problem.sink is None else problem.sink.detach(),
        q_blocks=table.q_blocks,
        HAS_SINK=problem.sink is not None,
        ENTROPIES=riders.entropy,
        DISTANCES=riders.distance,
        MAX_SCORES=riders.needs_argmax,
        CLASSES=classes,
        early=early,
        FIRST_KEYS=FIRST_KEYS if early else 0,
        DIRTY=dirty,
        CAREFUL=careful,
        PARTS=parts,
        AT_ONCE=REDO_BLOCKS,
        # Recomputed blocks may have immense scores. A fused multiply-add is rounded differently than the
        # maximum, and there the difference may overflow an exponential.
        enable_fp_fusion=not careful,
    )


def _find_argmax(
    operands: Operands, cut: Config, tiles: Tensor, keys: Int64[Tensor, "batch heads q"]
) -> None:
    p, table = operands.problem, operands.plan(cut.blocks)
    visits = operands.visits(table, table.by_query)
    names = ("LOW", "HIGH", "BITS", "mask_b", "mask_h", "plane_stride", "HAS_BITS", "BLOCK_Q", "BLOCK_K")
    start(
        argmax_kernel,
        (-(-p.q_len // ARGMAX_ROWS), p.heads, p.batch),
        **operands.plain,
        **operands.sizes,
        **operands.scoring,
        **{name: visits[name] for name in names},
        MAX_TILES=tiles,
        ARGMAX=keys,
        NUMBER=table.by_query.order if table.numbers is None else table.numbers,
        q_blocks=table.q_blocks,
        k_blocks=table.k_blocks,
        ROWS=ARGMAX_ROWS,
        CLASSES=CLASSES,
    )


def _sum_first_weight(operands: Operands, lse: Tensor, first_weight: Tensor, first: int) -> None:
    p = operands.problem
    start(
        first_weight_kernel,
        (-(-p.q_len // FIRST_ROWS), p.heads, p.batch),
        **operands.plain,
        **operands.sizes,
        **operands.scoring,
        **intervals(p).rows,
        LSE=lse,
        FIRST_WEIGHT=first_weight,
        first=first,
        ROWS=FIRST_ROWS,
        KEYS=max(16, 1 << (first - 1).bit_length()),
    )


def _supported(riders: Riders, by_hopper: bool) -> Riders:
    """The riders that one pass can return: either the tile of each row's maximum, or the maximum of each
    tile.

    If tile maxima are computed anyway, the argmax is the first of the top keys.
    """
    if not by_hopper:
        return replace(riders, top_keys=0, grain=0)
    top_keys = riders.top_keys if riders.top_keys <= MAX_FUSED_TOP_KEYS else 0
    top_keys = max(top_keys, int(riders.max_score and riders.grain > 0))
    return riders if top_keys == riders.top_keys else replace(riders, top_keys=top_keys)


def _empty(problem: Problem, riders: Riders) -> Streamed:
    q, shape = problem.q, (problem.batch, problem.heads, problem.q_len)

    def rows(wanted: bool) -> Tensor | None:
        return q.new_empty(shape, dtype=torch.float32) if wanted else None

    weight = key = block_maxima = None
    # If a sink takes all weight of a row, the row has no top key, so the argmax is computed separately.
    with_key = riders.max_score and not (riders.top_keys and problem.sink is not None)
    if riders.top_keys:
        weight = q.new_empty((*shape, riders.top_keys), dtype=torch.float32)
        key = q.new_empty(weight.shape, dtype=torch.int64)
    if riders.grain:
        blocks = (-(-n // riders.grain) for n in (problem.q_len, problem.k_len))
        block_maxima = q.new_empty((*shape[:2], *blocks), dtype=torch.float32)
    return Streamed(
        out=q.new_empty((*shape, problem.v.shape[-1]), dtype=problem.v.dtype),
        lse=q.new_empty(shape, dtype=torch.float32),
        entropy=rows(riders.entropy),
        distance=rows(riders.distance),
        max_score=rows(riders.max_score),
        argmax=q.new_empty(shape, dtype=torch.int64) if with_key else None,
        first=rows(riders.first > 0),
        top_weight=weight,
        top_key=key,
        block_maxima=block_maxima,
        grain=riders.grain,
    )
