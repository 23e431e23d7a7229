"""Launching the backward."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.sums import over_rows
from regard.engine.triton import hopper
from regard.engine.triton.backward_kernel import keys_kernel, queries_kernel
from regard.engine.triton.operands import Operands, described, strides

__all__ = ["backward"]


def backward(
    problem: Problem,
    out: Float[Tensor, "batch heads q v_dim"],
    lse: Float[Tensor, "batch heads q"],
    d_out: Float[Tensor, "batch heads q v_dim"],
    d_lse: Float[Tensor, "batch heads q"] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and the sink, recomputed from the log-sum-exp of every row."""
    p = problem
    d_out = d_out.to(p.v.dtype).contiguous()
    delta = (d_out.float() * out.float()).sum(-1)
    if p.mask is not None:
        d_out = d_out.nan_to_num(0.0, 0.0, 0.0)
    if d_lse is not None:
        delta = delta - d_lse
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (p.q, p.k, p.v))
    # Zero weights must not meet NaN or inf. A row that did attend to them has lse NaN, and so has its
    # gradient.
    q, k, v = (x if p.mask is None else x.nan_to_num(0.0, 0.0, 0.0) for x in (p.q, p.k, p.v))
    operands = Operands(replace(p, q=q, k=k, v=v))
    # exp(s - inf) = 0: a row that sees nothing sends nothing back.
    bound = lse.masked_fill(lse == -torch.inf, torch.inf).contiguous()
    if hopper.applicable(operands.problem):
        from regard.engine.triton.hopper.backward import Changes, launch

        launch(operands, Changes(d_out, bound, delta), dq, dk, dv)
    else:
        _launch(operands, d_out, bound, delta.contiguous(), dq, dk, dv)
    return dq, dk, dv, _sink_gradient(p, lse, delta)


def _launch(
    operands: Operands, d_out: Tensor, lse: Tensor, delta: Tensor, dq: Tensor, dk: Tensor, dv: Tensor
) -> None:
    p = operands.problem
    shared = {"LSE": lse, "DELTA": delta, **operands.sizes, **operands.scoring}
    for kernel, name in ((keys_kernel, "keys"), (queries_kernel, "queries")):
        cut = operands.config(name)
        table = operands.plan(cut.blocks)
        by_key = name == "keys"
        runs = table.by_key() if by_key else table.by_query
        grid = (table.k_blocks, p.k.shape[1], p.batch) if by_key else (table.q_blocks, p.heads, p.batch)
        targets = {"DK": dk, "DV": dv} if by_key else {"DQ": dq, "signed_scale": float(p.scoring.scale)}
        kernel[grid](
            **operands.pairs(cut, both=True),
            **operands.values(cut),
            **operands.visits(table, runs),
            **shared,
            **targets,
            **cut.options,
            **strides("d", d_out),
            D_OUT=described(d_out, cut.block_q) if operands.tma else d_out,
            ORDER=runs.order,
        )


def _sink_gradient(problem: Problem, lse: Tensor, delta: Tensor) -> Tensor | None:
    if problem.sink is None:
        return None
    weight = (problem.sink.to(lse.dtype)[:, None] - lse).exp()
    return -over_rows(weight * delta).to(problem.sink.dtype)
