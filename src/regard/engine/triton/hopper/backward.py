"""Launching the backward for Hopper."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.triton.hopper.boxes import boxes, lines
from regard.engine.triton.hopper.keys_kernel import hopper_keys_kernel
from regard.engine.triton.hopper.queries_kernel import hopper_queries_kernel
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import intervals

__all__ = ["Changes", "launch"]

# What stays with a program, keys in one kernel and queries in the other, and the warps of a warpgroup.
OWN, WARPS = 128, 4
# Rows of the other side that are taken at a time, and how many such tiles are on their way.
BLOCK, STAGES = 64, 4


@dataclass(frozen=True)
class Changes:
    """What comes back to the outputs of a problem: their gradients, and what is the same for a whole row."""

    d_out: Float[Tensor, "batch heads q dim"]
    lse: Float[Tensor, "batch heads q"]
    delta: Float[Tensor, "batch heads q"]


def launch(operands: Operands, changes: Changes, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
    """Fill the gradients; the lse of a row that sees nothing must be inf."""
    # exp(s - inf) = 0: rows behind the last send nothing back either.
    lse = _lines(changes.lse * math.log2(math.e), math.inf)
    delta = _lines(changes.delta, 0.0)
    _keys(operands, changes.d_out, lse, delta, dk, dv)
    _queries(operands, changes.d_out, lse, delta, dq)


def _keys(operands: Operands, d_out: Tensor, lse: Tensor, delta: Tensor, dk: Tensor, dv: Tensor) -> None:
    """The gradients of keys and values; `lse` and `delta` are lines."""
    p, table = operands.problem, intervals(operands.problem)
    blocks, order = table.key_blocks(BLOCK, OWN)
    low, high = table.whole(OWN)
    hopper_keys_kernel[(order.shape[1], p.k.shape[1], p.batch)](
        boxes(operands.q, BLOCK),
        boxes(operands.k, OWN),
        boxes(operands.v, OWN),
        boxes(d_out, BLOCK),
        lines(lse, BLOCK),
        lines(delta, BLOCK),
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


def _queries(operands: Operands, d_out: Tensor, lse: Tensor, delta: Tensor, dq: Tensor) -> None:
    """The gradient of queries; `lse` and `delta` are lines."""
    p, table = operands.problem, intervals(operands.problem)
    blocks, order = table.blocks(OWN, BLOCK)
    hopper_queries_kernel[(order.shape[1], p.heads, p.batch)](
        boxes(operands.q, OWN),
        boxes(operands.k, BLOCK),
        boxes(operands.v, BLOCK),
        boxes(d_out, OWN),
        lse,
        delta,
        dq,
        table.low,
        table.high,
        blocks,
        order,
        *table.strides,
        operands.scale,
        float(p.scoring.scale),
        p.q_len,
        lse.shape[1],
        p.heads,
        p.group,
        order.shape[1] if table.planes > 1 else 0,
        BLOCK=BLOCK,
        DIM=p.q.shape[-1],
        STAGES=STAGES,
        num_warps=WARPS,
    )


def _lines(x: Float[Tensor, "batch heads q"], fill: float) -> Float[Tensor, "maps rows"]:
    """One number per query, a line per head, filled up to whole blocks: the copy engine wants lines that
    begin at multiples of 16 bytes."""
    flat = x.flatten(0, 1)
    return torch.nn.functional.pad(flat, (0, -flat.shape[1] % OWN), value=fill)
