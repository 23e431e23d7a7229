"""Launching the fused forward, and what can be had from it alone."""

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
from regard.engine.triton.forward_kernel import first_kernel, forward_kernel, peak_kernel
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import intervals
from regard.engine.triton.starting import start
from regard.engine.triton.support import MOST_TOLD
from regard.engine.triton.tile_tops import TileTops, tops_arguments

__all__ = ["forward"]

# Every so many keys of a tile are searched together for the largest score.
CLASSES = 16
PEAK_ROWS, FIRST_ROWS = 32, 32
# First keys that are multiplied with those queries once more, to say what weight they have.
EARLIES = 16
# What the kernel for Hopper leaves is hardly ever done again, but compiled for everybody: with a quarter of a
# tile at a time that takes a third as long.
PARTS = 4
# Blocks of queries of which a program asks whether they are to be done again.
MENDED = 8


def forward(problem: Problem, riders: Riders, tidy: bool = False) -> Streamed:
    """Output, log-sum-exp, and what rows bring along: entropy, distance, the largest score and its key,
    the weight of the first keys.

    With `tidy` values are known to be numbers, or nobody wants the output: garbage is not looked for.
    """
    operands = Operands(problem)
    by_hopper = hopper.applicable(problem)
    riders = _told(riders, by_hopper)
    # Blocks that the kernel for Hopper leaves dirty are done again by ours: they must be the same blocks.
    cut = operands.config("rows" if by_hopper or riders.peak or riders.distance else "forward")
    result = _empty(problem, riders)
    rows, blocks = result.lse.shape, -(-problem.q_len // cut.block_q)
    # Garbage behind a mask makes blocks of queries dirty, and so do scores that leap, on Hopper.
    careful = by_hopper or (problem.mask is not None and not tidy)
    dirty = (torch.zeros if careful else torch.empty)(
        (*rows[:2], blocks), dtype=torch.int32, device=result.lse.device
    )
    # The kernel for Hopper tells the key of a row's largest score or its tile, ours the tile of each class of
    # keys.
    tells_key = by_hopper and riders.seeks_peaks and hopper.tells_key(problem)
    classes = 0 if tells_key else 1 if by_hopper else CLASSES
    peak_at, tiles = dirty, None
    if tells_key and result.peak_key is not None:
        peak_at = result.peak_key
    elif riders.seeks_peaks:
        peak_at = tiles = torch.empty(*rows, classes, dtype=torch.int32, device=dirty.device)
    run = partial(_launch, operands, cut, riders, result, peak_at, dirty, classes)
    first = riders.first
    if by_hopper:
        from regard.engine.triton.hopper.forward import launch, tells_first

        early = first if tells_first(riders, tells_key) else 0
        mend = partial(run, careful=True, early=early, parts=PARTS)
        launch(operands, riders, result, peak_at, dirty, early, mend)
        first -= early
    else:
        run(careful=False)
        if careful:
            run(careful=True)
    _look_again(operands, cut, first, result, tiles, by_hopper)
    return result


def _look_again(
    operands: Operands, cut: Config, first: int, result: Streamed, tiles: Tensor | None, by_hopper: bool
) -> None:
    """What a pass over all tiles leaves to a second look at a few: the key of the largest score, where the
    tiles that have it are given, and the weight of the `first` keys, if there are any."""
    if by_hopper and tiles is not None:
        from regard.engine.triton.hopper.peaks import MOST_FIRST, find_peaks

        some = first if first <= MOST_FIRST else 0
        find_peaks(operands, tiles, result, some, cut.block_k)
        if some:
            return
    elif tiles is not None and result.peak_key is not None:
        _peak_keys(operands, cut, tiles, result.peak_key)
    if first and result.first is not None:
        _sum_first_keys(operands, result.lse, result.first, first)


def _launch(
    operands: Operands,
    cut: Config,
    riders: Riders,
    result: Streamed,
    peak_at: Tensor,
    dirty: Tensor,
    classes: int,
    tops: TileTops | None = None,
    *,
    careful: bool,
    early: int = 0,
    parts: int = 1,
) -> None:
    problem, unused = operands.problem, result.lse
    table = operands.plan(cut.blocks)
    start(
        forward_kernel,
        (-(-table.q_blocks // (MENDED if careful else 1)), problem.heads, problem.batch),
        # Hardly ever is there something to do again.
        **operands.pairs(cut, engine=not careful),
        **operands.values(cut, engine=not careful),
        **operands.sizes,
        **operands.scoring,
        **operands.visits(table, table.by_query),
        **cut.options,
        **tops_arguments(tops, unused),
        ORDER=table.by_query.order,
        OUT=result.out,
        LSE=result.lse,
        ENTROPY=unused if result.entropy is None else result.entropy,
        DISTANCE=unused if result.distance is None else result.distance,
        PEAK=unused if result.peak is None else result.peak,
        PEAK_AT=peak_at,
        EARLY=unused if result.first is None else result.first,
        SINK=unused if problem.sink is None else problem.sink.detach(),
        q_blocks=table.q_blocks,
        HAS_SINK=problem.sink is not None,
        ENTROPIES=riders.entropy,
        DISTANCES=riders.distance,
        PEAKS=riders.seeks_peaks,
        CLASSES=classes,
        early=early,
        EARLIES=EARLIES if early else 0,
        DIRTY=dirty,
        CAREFUL=careful,
        PARTS=parts,
        AT_ONCE=MENDED,
    )


def _peak_keys(operands: Operands, cut: Config, tiles: Tensor, keys: Int64[Tensor, "batch heads q"]) -> None:
    p, table = operands.problem, operands.plan(cut.blocks)
    visits = operands.visits(table, table.by_query)
    names = ("LOW", "HIGH", "BITS", "mask_b", "mask_h", "plane_stride", "HAS_BITS", "BLOCK_Q", "BLOCK_K")
    start(
        peak_kernel,
        (-(-p.q_len // PEAK_ROWS), p.heads, p.batch),
        **operands.plain,
        **operands.sizes,
        **operands.scoring,
        **{name: visits[name] for name in names},
        PEAK_TILE=tiles,
        PEAK_KEY=keys,
        NUMBER=table.by_query.order if table.numbers is None else table.numbers,
        q_blocks=table.q_blocks,
        k_blocks=table.k_blocks,
        ROWS=PEAK_ROWS,
        CLASSES=CLASSES,
    )


def _sum_first_keys(operands: Operands, lse: Tensor, mass: Tensor, first: int) -> None:
    p = operands.problem
    start(
        first_kernel,
        (-(-p.q_len // FIRST_ROWS), p.heads, p.batch),
        **operands.plain,
        **operands.sizes,
        **operands.scoring,
        **intervals(p).rows,
        LSE=lse,
        MASS=mass,
        first=first,
        ROWS=FIRST_ROWS,
        KEYS=max(16, 1 << (first - 1).bit_length()),
    )


def _told(riders: Riders, by_hopper: bool) -> Riders:
    """The riders that a pass has room for: either the tile of a row's largest score or that of each tile.

    Where largest scores of tiles are told anyway, the key of the largest of all is the first of the top keys.
    """
    if not by_hopper:
        return replace(riders, tops=0, grain=0)
    tops = riders.tops if riders.tops <= MOST_TOLD else 0
    tops = max(tops, int(riders.peak and riders.grain > 0))
    return riders if tops == riders.tops else replace(riders, tops=tops)


def _empty(problem: Problem, riders: Riders) -> Streamed:
    q, shape = problem.q, (problem.batch, problem.heads, problem.q_len)

    def rows(wanted: bool) -> Tensor | None:
        return q.new_empty(shape, dtype=torch.float32) if wanted else None

    weight = key = highest = None
    # Where a sink leaves nothing to any key, the first of the top keys is none.
    with_key = riders.peak and not (riders.tops and problem.sink is not None)
    if riders.tops:
        weight = q.new_empty((*shape, riders.tops), dtype=torch.float32)
        key = q.new_empty(weight.shape, dtype=torch.int64)
    if riders.grain:
        blocks = (-(-n // riders.grain) for n in (problem.q_len, problem.k_len))
        highest = q.new_empty((*shape[:2], *blocks), dtype=torch.float32)
    return Streamed(
        out=q.new_empty((*shape, problem.v.shape[-1]), dtype=problem.v.dtype),
        lse=q.new_empty(shape, dtype=torch.float32),
        entropy=rows(riders.entropy),
        distance=rows(riders.distance),
        peak=rows(riders.peak),
        peak_key=q.new_empty(shape, dtype=torch.int64) if with_key else None,
        first=rows(riders.first > 0),
        top_weight=weight,
        top_key=key,
        highest=highest,
        grain=riders.grain,
    )
