"""Launching the backward for Hopper."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from torch import Tensor

from regard.engine.triton.changes import LINE, Changes
from regard.engine.triton.hopper.boxes import boxes, lines
from regard.engine.triton.hopper.keys_kernel import hopper_keys_kernel
from regard.engine.triton.hopper.queries_kernel import hopper_queries_kernel
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import intervals
from regard.engine.triton.starting import start

__all__ = ["launch"]

# What stays with a program, keys in one kernel and queries in the other (lines are filled up to so many), and
# the warps of a warpgroup.
OWN, WARPS = LINE, 4
# Rows of the other side that are taken at a time, and how many such tiles are on their way.
BLOCK, STAGES = 64, 4


def launch(operands: Operands, changes: Changes, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
    """Fill the gradients."""
    _keys(operands, changes, dk, dv)
    _queries(operands, changes, dq)


def _keys(operands: Operands, changes: Changes, dk: Tensor, dv: Tensor) -> None:
    """The gradients of keys and values."""
    p, table = operands.problem, intervals(operands.problem)
    blocks, order = table.key_blocks(BLOCK, OWN)
    low, high = table.whole(OWN)
    start(
        hopper_keys_kernel,
        (order.shape[1], p.k.shape[1], p.batch),
        boxes(operands.q, BLOCK),
        boxes(operands.k, OWN),
        boxes(operands.v, OWN),
        boxes(changes.d_out, BLOCK),
        lines(changes.lse, BLOCK),
        lines(changes.delta, BLOCK),
        dk,
        dv,
        low,
        high,
        blocks,
        order,
        *(low.stride(i) if low.shape[i] > 1 else 0 for i in (0, 1)),
        operands.scale,
        p.k_len,
        p.heads,
        p.group,
        order.shape[1] if table.planes > 1 else 0,
        BLOCK=BLOCK,
        DIM=p.q.shape[-1],
        STAGES=STAGES,
        num_warps=WARPS,
    )


def _queries(operands: Operands, changes: Changes, dq: Tensor) -> None:
    """The gradient of queries."""
    p, table = operands.problem, intervals(operands.problem)
    blocks, order = table.blocks(OWN, BLOCK)
    start(
        hopper_queries_kernel,
        (order.shape[1], p.heads, p.batch),
        boxes(operands.q, OWN),
        boxes(operands.k, BLOCK),
        boxes(operands.v, BLOCK),
        boxes(changes.d_out, OWN),
        changes.lse,
        changes.delta,
        dq,
        table.low,
        table.high,
        blocks,
        order,
        *table.strides,
        operands.scale,
        float(p.scoring.scale),
        p.q_len,
        changes.lse.shape[1],
        p.heads,
        p.group,
        order.shape[1] if table.planes > 1 else 0,
        BLOCK=BLOCK,
        DIM=p.q.shape[-1],
        STAGES=STAGES,
        num_warps=WARPS,
    )
