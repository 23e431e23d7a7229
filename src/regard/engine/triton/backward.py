"""Launching the backward."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.sums import over_rows
from regard.engine.triton import hopper
from regard.engine.triton.backward_kernel import changes_kernel, keys_kernel, queries_kernel
from regard.engine.triton.configs import width
from regard.engine.triton.operands import Operands, described, strides
from regard.engine.triton.starting import start

__all__ = ["Changes", "backward"]

# Lines of one number per query are filled up to whole blocks: Hopper's copy engine wants each to begin at a
# multiple of 16 bytes.
LINE = 128
# Queries that one program prepares.
CHANGES_ROWS = 32


@dataclass(frozen=True)
class Changes:
    """What comes back to the outputs of a problem: their gradients, and what is the same for a whole row.

    Log-sum-exps are in units of log 2, and inf for rows that see nothing.
    """

    d_out: Float[Tensor, "batch heads q v_dim"]
    lse: Float[Tensor, "maps lines"]
    delta: Float[Tensor, "maps lines"]


def backward(
    problem: Problem,
    out: Float[Tensor, "batch heads q v_dim"],
    lse: Float[Tensor, "batch heads q"],
    d_out: Float[Tensor, "batch heads q v_dim"],
    d_lse: Float[Tensor, "batch heads q"] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and the sink, recomputed from the log-sum-exp of every row."""
    operands, changes = _prepared(problem, out, lse, d_out, d_lse)
    dq, dk, dv = (
        torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (problem.q, problem.k, problem.v)
    )
    if hopper.applicable(operands.problem):
        from regard.engine.triton.hopper.backward import launch

        launch(operands, changes, dq, dk, dv)
    else:
        _launch(operands, changes, dq, dk, dv)
    return dq, dk, dv, _sink_gradient(problem, lse, changes.delta[:, : problem.q_len].view(lse.shape))


def _prepared(
    problem: Problem, out: Tensor, lse: Tensor, d_out: Tensor, d_lse: Tensor | None
) -> tuple[Operands, Changes]:
    """A problem without garbage behind its mask, and what comes back to its rows."""
    p = problem
    d_out = d_out.to(p.v.dtype).contiguous()
    q = p.q if p.q.stride(-1) == 1 else p.q.contiguous()
    clean = p.mask is not None
    # Without a mask there is nothing that nobody sees.
    k, v = (x.nan_to_num(0.0, 0.0, 0.0) if clean else x for x in (p.k, p.v))
    clean_q, clean_d = (
        torch.empty_like(x, memory_format=torch.contiguous_format) if clean else x for x in (q, d_out)
    )
    lines = (p.batch * p.heads, -(-p.q_len // LINE) * LINE)
    bound, delta = (lse.new_empty(lines) for _ in range(2))
    start(
        changes_kernel,
        (lines[1] // CHANGES_ROWS, p.heads, p.batch),
        Q=q,
        OUT=out,
        D_OUT=d_out,
        LSE=lse.contiguous(),
        D_LSE=lse if d_lse is None else d_lse.contiguous(),
        CLEAN_Q=clean_q,
        CLEAN_D=clean_d,
        BOUND=bound,
        DELTA=delta,
        **strides("q", q),
        **strides("o", out),
        **strides("d", d_out),
        q_len=p.q_len,
        heads=p.heads,
        length=lines[1],
        DIM=q.shape[-1],
        V_DIM=out.shape[-1],
        WIDTH=width(q.shape[-1]),
        V_WIDTH=width(out.shape[-1]),
        ROWS=CHANGES_ROWS,
        HAS_D_LSE=d_lse is not None,
        CLEAN=clean,
    )
    return Operands(replace(p, q=clean_q, k=k, v=v)), Changes(clean_d, bound, delta)


def _launch(operands: Operands, changes: Changes, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
    p, d_out = operands.problem, changes.d_out
    lines = {"LSE": changes.lse, "DELTA": changes.delta, "length": changes.lse.shape[1]}
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
