"""Launching the fused forward for Hopper."""

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
from regard.engine.triton.hopper.boxes import boxes
from regard.engine.triton.hopper.forward_kernel import MOST_EARLY, hopper_forward_kernel
from regard.engine.triton.hopper.tops import Tops
from regard.engine.triton.hopper.turns import grid, heads_across
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import intervals
from regard.engine.triton.starting import start
from regard.engine.triton.tile_tops import TileTops, tops_arguments

__all__ = ["launch", "tells_first"]

BLOCK_Q, BLOCK_K, STAGES, WARPS = 128, 128, 2, 4


def launch(
    operands: Operands,
    riders: Riders,
    result: Streamed,
    peak_at: Tensor,
    dirty: Tensor,
    early: int,
    mend: Callable[[TileTops | None], None],
) -> None:
    """Fill `result`, and where peaks are asked, but no top keys, say where rows have theirs: in which tile,
    or if keys have their place in `result`, at which. What weight the `early` first keys have is told too.

    Blocks of queries that come out as something else than numbers are dirty, and `mend` does them again, and
    what the largest scores of their tiles are.
    """
    p = operands.problem
    table, unused = intervals(p), result.lse
    blocks, order = table.blocks(BLOCK_Q, BLOCK_K)
    telling = Tops(operands, riders, result, (BLOCK_Q, BLOCK_K))
    across = heads_across(p, operands.q, operands.k, operands.v)
    for band, tops in telling.bands():
        some = order
        if len(band) < order.shape[1]:
            some = table.once(("order", band), partial(_part, order, band))
        start(
            hopper_forward_kernel,
            grid(len(band), p.heads, p.batch, across),
            **table.rows,
            **tops_arguments(tops, unused),
            Q=boxes(operands.q, BLOCK_Q, across),
            K=boxes(operands.k, BLOCK_K, across // p.group),
            V=boxes(operands.v, BLOCK_K, across // p.group),
            OUT=result.out,
            LSE=result.lse,
            ENTROPY=_or(result.entropy, unused),
            DISTANCE=_or(result.distance, unused),
            PEAK=_or(result.peak, unused),
            PEAK_AT=peak_at,
            EARLY=_or(result.first, unused),
            DIRTY=dirty,
            SINK=unused if p.sink is None else p.sink.detach(),
            BLOCKS=blocks,
            ORDER=some,
            scale=operands.scale,
            q_len=p.q_len,
            offset=p.offset,
            heads=across or p.heads,
            group=p.group,
            q_blocks=blocks.shape[1],
            plane_stride=blocks.shape[1] if table.planes > 1 else 0,
            across=across,
            early=early,
            BLOCK_K=BLOCK_K,
            DIM=p.q.shape[-1],
            STAGES=STAGES,
            HAS_SINK=p.sink is not None,
            ENTROPIES=riders.entropy,
            DISTANCES=riders.distance,
            PEAKS=riders.seeks_peaks,
            KEYS=peak_at is result.peak_key,
            EARLIES=early > 0,
            num_warps=WARPS,
        )
        mend(tops)
        if tops is not None:
            telling.tell(tops, band)
    telling.finish()


def tells_first(riders: Riders, tells_key: bool) -> bool:
    """Whether the kernel can say what weight the first keys have.

    Where the keys of rows' largest scores are looked up afterwards, that is done on the way.
    """
    return riders.first <= MOST_EARLY.value and (tells_key or not riders.seeks_peaks)


def _part(order: Int32[Tensor, "planes blocks"], band: range) -> Int32[Tensor, "planes blocks"]:
    """An order of blocks in which a band's come first."""
    outside = (order < band.start) | (order >= band.stop)
    return order.gather(1, outside.to(torch.int8).argsort(dim=1, stable=True)).contiguous()


def _or(x: Tensor | None, unused: Tensor) -> Any:
    return unused if x is None else x
