"""Launches the backward."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.sums import over_rows
from regard.engine.triton import hopper
from regard.engine.triton.backward.kernel import keys_kernel, queries_kernel
from regard.engine.triton.backward.preprocess import PreparedUpstream, preprocess
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands, described, strides
from regard.engine.triton.replay.calls import replay_or_call

__all__ = ["backward"]


def backward(
    problem: Problem,
    out: Float[Tensor, "batch heads q v_dim"],
    lse: Float[Tensor, "batch heads q"],
    d_out: Float[Tensor, "batch heads q v_dim"],
    d_lse: Float[Tensor, "batch heads q"] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and the sink, recomputed from the log-sum-exp of every row."""
    given = (out, lse, d_out, d_lse)
    return replay_or_call(problem, given, ("backward", d_lse is None), partial(_backward, problem, *given))


def _backward(
    problem: Problem, out: Tensor, lse: Tensor, d_out: Tensor, d_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    operands, upstream = preprocess(problem, out, lse, d_out, d_lse)
    dq, dk, dv = (
        torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (problem.q, problem.k, problem.v)
    )
    if hopper.applicable(operands.problem):
        from regard.engine.triton.hopper.backward.launch import launch

        launch(operands, upstream, dq, dk, dv)
    else:
        _launch(operands, upstream, dq, dk, dv)
    return dq, dk, dv, _sink_gradient(problem, lse, upstream.delta[:, : problem.q_len].view(lse.shape))


def _launch(operands: Operands, upstream: PreparedUpstream, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
    p, d_out = operands.problem, upstream.d_out
    lines = {"LSE": upstream.lse, "DELTA": upstream.delta, "length": upstream.lse.shape[1]}
    shared = {**lines, **operands.sizes, **operands.scoring}
    for kernel, name in ((keys_kernel, "keys"), (queries_kernel, "queries")):
        cut = operands.config(name)
        table = operands.plan(cut.blocks)
        by_key = name == "keys"
        runs = table.by_key() if by_key else table.by_query
        grid = (table.k_blocks, p.k.shape[1], p.batch) if by_key else (table.q_blocks, p.heads, p.batch)
        targets = {"DK": dk, "DV": dv} if by_key else {"DQ": dq, "signed_scale": float(p.scoring.scale)}
        start(
            kernel,
            grid,
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
