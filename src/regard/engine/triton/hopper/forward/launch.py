"""Launches the fused forward for Hopper."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Int32
from torch import Tensor

from regard.engine.riders import Riders, Streamed
from regard.engine.triton.forward.tile_maxima import TileMaxima, tile_maxima_arguments
from regard.engine.triton.hopper.forward.kernel import MAX_FIRST_KEYS, hopper_forward_kernel
from regard.engine.triton.hopper.head_order import grid, heads_across
from regard.engine.triton.hopper.tma import row_steps, tile_descriptor
from regard.engine.triton.hopper.topk.launch import TopKeys
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import intervals

__all__ = ["launch", "returns_first_weight"]

BLOCK_Q, BLOCK_K, STAGES, WARPS = 128, 128, 2, 4


def launch(
    operands: Operands,
    riders: Riders,
    result: Streamed,
    argmax: Tensor,
    dirty: Tensor,
    first_keys: int,
    redo: Callable[[TileMaxima | None], None],
) -> None:
    """Fill `result`, including the weight of the first `first_keys` keys. If max scores but no top keys are
    requested, `argmax` gets the tile of each row's maximum; if it is `result.argmax` itself, the key.

    Blocks of queries whose output is not finite, because of garbage behind the mask or immense scores, are
    flagged in `dirty`. `redo` recomputes them and their tile maxima.
    """
    p = operands.problem
    table = intervals(p)
    blocks, order = table.blocks(BLOCK_Q, BLOCK_K)
    top_keys = TopKeys(operands, riders, result, (BLOCK_Q, BLOCK_K))
    across = heads_across(p, operands.q, operands.k, operands.v)
    arguments = _arguments(operands, riders, result, across) | table.rows
    for band, tile_maxima in top_keys.bands():
        some = order
        if len(band) < order.shape[1]:
            some = table.once(("order", band), partial(_band_order, order, band))
        start(
            hopper_forward_kernel,
            grid(len(band), p.heads, p.batch, across),
            **arguments,
            **tile_maxima_arguments(tile_maxima, result.lse),
            ARGMAX=argmax,
            DIRTY=dirty,
            BLOCKS=blocks,
            ORDER=some,
            q_blocks=blocks.shape[1],
            plane_stride=blocks.shape[1] if table.planes > 1 else 0,
            first_keys=first_keys,
            FIND_KEY=argmax is result.argmax,
            FIRST_KEYS=first_keys > 0,
            num_warps=WARPS,
        )
        redo(tile_maxima)
        if tile_maxima is not None:
            top_keys.process_band(tile_maxima, band)


def _arguments(operands: Operands, riders: Riders, result: Streamed, across: int) -> dict[str, Any]:
    """The arguments that the launches of all bands share."""
    p, unused = operands.problem, result.lse
    return dict(
        Q=tile_descriptor(operands.q, BLOCK_Q, across),
        K=tile_descriptor(operands.k, BLOCK_K, across // p.group),
        V=tile_descriptor(operands.v, BLOCK_K, across // p.group),
        Q_ROWS=operands.q,
        K_ROWS=operands.k,
        **row_steps("q", operands.q, across),
        **row_steps("k", operands.k, across // p.group),
        OUT=result.out,
        LSE=result.lse,
        ENTROPY=_or(result.entropy, unused),
        DISTANCE=_or(result.distance, unused),
        MAX_SCORE=_or(result.max_score, unused),
        FIRST_WEIGHT=_or(result.first, unused),
        SINK=unused if p.sink is None else p.sink.detach(),
        scale=operands.scale,
        q_len=p.q_len,
        offset=p.offset,
        heads=across or p.heads,
        group=p.group,
        across=across,
        BLOCK_K=BLOCK_K,
        DIM=p.q.shape[-1],
        STAGES=STAGES,
        HAS_SINK=p.sink is not None,
        ENTROPIES=riders.entropy,
        DISTANCES=riders.distance,
        MAX_SCORES=riders.needs_argmax,
    )


def returns_first_weight(riders: Riders, finds_argmax: bool) -> bool:
    """Whether the kernel returns the weight of the first keys.

    If the argmax kernel runs afterwards, it sums this weight instead.
    """
    return riders.first <= MAX_FIRST_KEYS.value and (finds_argmax or not riders.needs_argmax)


def _band_order(order: Int32[Tensor, "planes blocks"], band: range) -> Int32[Tensor, "planes blocks"]:
    """The order of blocks with those of a band first."""
    outside = (order < band.start) | (order >= band.stop)
    return order.gather(1, outside.to(torch.int8).argsort(dim=1, stable=True)).contiguous()


def _or(x: Tensor | None, unused: Tensor) -> Any:
    return unused if x is None else x
