"""Launching the fused forward for Hopper."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.engine.riders import Riders, Streamed
from regard.engine.triton.hopper.boxes import boxes
from regard.engine.triton.hopper.forward_kernel import hopper_forward_kernel
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import intervals

__all__ = ["launch"]

BLOCK_Q, BLOCK_K, STAGES, WARPS = 128, 128, 2, 4


def launch(
    operands: Operands,
    riders: Riders,
    result: Streamed,
    peak_tile: Tensor,
    dirty: Tensor,
    classes: int,
) -> None:
    """Fill `result`, the tiles of its peaks, and which blocks of queries came out as something else than
    numbers."""
    p = operands.problem
    table = intervals(p)
    blocks, order = table.blocks(BLOCK_Q, BLOCK_K)
    unused = result.lse
    hopper_forward_kernel[(order.shape[1], p.heads, p.batch)](
        boxes(operands.q, BLOCK_Q),
        boxes(operands.k, BLOCK_K),
        boxes(operands.v, BLOCK_K),
        result.out,
        result.lse,
        *(_or(x, unused) for x in (result.entropy, result.distance, result.peak)),
        peak_tile,
        _or(result.tops, unused),
        dirty,
        unused if p.sink is None else p.sink.detach(),
        table.low,
        table.high,
        blocks,
        order,
        *table.strides,
        operands.scale,
        p.q_len,
        p.offset,
        p.heads,
        p.group,
        order.shape[1],
        order.shape[1] if table.planes > 1 else 0,
        BLOCK_K=BLOCK_K,
        DIM=p.q.shape[-1],
        STAGES=STAGES,
        CLASSES=classes,
        HAS_SINK=p.sink is not None,
        ENTROPIES=riders.entropy,
        DISTANCES=riders.distance,
        PEAKS=riders.peak or riders.tops,
        ALL_TOPS=riders.tops,
        num_warps=WARPS,
    )


def _or(x: Tensor | None, unused: Tensor) -> Any:
    return unused if x is None else x
