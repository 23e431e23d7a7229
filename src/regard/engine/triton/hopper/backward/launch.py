"""Launches the backward for Hopper."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from torch import Tensor

from regard.engine.triton.backward.preprocess import LINE, PreparedUpstream
from regard.engine.triton.hopper.backward.keys_kernel import hopper_keys_kernel
from regard.engine.triton.hopper.backward.queries_kernel import hopper_queries_kernel
from regard.engine.triton.hopper.head_order import grid, heads_across
from regard.engine.triton.hopper.tma import line_descriptor, tile_descriptor
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import intervals

__all__ = ["launch"]

# Keys (or queries) per program, the multiple that lines are padded to, and warps per warpgroup.
OWN, WARPS = LINE, 4
# Rows of the other side per tile, and tiles in flight.
BLOCK, STAGES = 64, 4


def launch(operands: Operands, upstream: PreparedUpstream, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
    """Fill the gradients."""
    across = heads_across(operands.problem, operands.q, operands.k, operands.v, upstream.d_out)
    _keys(operands, upstream, dk, dv, across)
    _queries(operands, upstream, dq, across)


def _keys(operands: Operands, upstream: PreparedUpstream, dk: Tensor, dv: Tensor, across: int) -> None:
    """The gradients of keys and values."""
    p, table = operands.problem, intervals(operands.problem)
    blocks, order = table.key_blocks(BLOCK, OWN)
    low, high, shared = *table.whole(OWN), across // p.group
    start(
        hopper_keys_kernel,
        grid(order.shape[1], p.k.shape[1], p.batch, shared),
        tile_descriptor(operands.q, BLOCK, across),
        tile_descriptor(operands.k, OWN, shared),
        tile_descriptor(operands.v, OWN, shared),
        tile_descriptor(upstream.d_out, BLOCK, across),
        line_descriptor(upstream.lse, BLOCK),
        line_descriptor(upstream.delta, BLOCK),
        dk,
        dv,
        low,
        high,
        blocks,
        order,
        *(low.stride(i) if low.shape[i] > 1 else 0 for i in (0, 1)),
        operands.scale,
        p.k_len,
        across or p.heads,
        p.group,
        order.shape[1] if table.planes > 1 else 0,
        across,
        BLOCK=BLOCK,
        DIM=p.q.shape[-1],
        STAGES=STAGES,
        num_warps=WARPS,
    )


def _queries(operands: Operands, upstream: PreparedUpstream, dq: Tensor, across: int) -> None:
    """The gradient of queries."""
    p, table = operands.problem, intervals(operands.problem)
    blocks, order = table.blocks(OWN, BLOCK)
    start(
        hopper_queries_kernel,
        grid(order.shape[1], p.heads, p.batch, across),
        tile_descriptor(operands.q, OWN, across),
        tile_descriptor(operands.k, BLOCK, across // p.group),
        tile_descriptor(operands.v, BLOCK, across // p.group),
        tile_descriptor(upstream.d_out, OWN, across),
        upstream.lse,
        upstream.delta,
        dq,
        table.low,
        table.high,
        blocks,
        order,
        *table.strides,
        operands.scale,
        float(p.scoring.scale),
        p.q_len,
        upstream.lse.shape[1],
        across or p.heads,
        p.group,
        order.shape[1] if table.planes > 1 else 0,
        across,
        BLOCK=BLOCK,
        DIM=p.q.shape[-1],
        STAGES=STAGES,
        num_warps=WARPS,
    )
