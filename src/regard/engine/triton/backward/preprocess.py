"""Prepares a problem and its upstream gradients for the backward kernels."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.backward.kernel import preprocess_kernel
from regard.engine.triton.configs import width
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands, packed, strides

__all__ = ["LINE", "PreparedUpstream", "preprocess"]

# Lines of one number per query are padded to multiples of this: TMA needs each to begin at 16 bytes.
LINE = 128
# Queries per program.
ROWS = 32


@dataclass(frozen=True)
class PreparedUpstream:
    """Upstream gradients, and delta and lse2 of every row.

    Log-sum-exps are in units of log 2, and inf for dead rows.
    """

    d_out: Float[Tensor, "batch heads q v_dim"]
    lse: Float[Tensor, "maps lines"]
    delta: Float[Tensor, "maps lines"]


def preprocess(
    problem: Problem, out: Tensor, lse: Tensor, d_out: Tensor, d_lse: Tensor | None
) -> tuple[Operands, PreparedUpstream]:
    """Replace garbage behind the mask, and compute lse2 and delta of every row."""
    p = problem
    d_out = d_out.to(p.v.dtype).contiguous()
    q, clean = packed(p.q), p.mask is not None
    # Without a mask every key is seen, so there is nothing to clean.
    k, v = (x.nan_to_num(0.0, 0.0, 0.0) if clean else x for x in (p.k, p.v))
    clean_q, clean_d = (
        torch.empty_like(x, memory_format=torch.contiguous_format) if clean else x for x in (q, d_out)
    )
    lines = (p.batch * p.heads, -(-p.q_len // LINE) * LINE)
    lse2, delta = (lse.new_empty(lines) for _ in range(2))
    start(
        preprocess_kernel,
        (lines[1] // ROWS, p.heads, p.batch),
        Q=q,
        OUT=out,
        D_OUT=d_out,
        LSE=lse.contiguous(),
        D_LSE=lse if d_lse is None else d_lse.contiguous(),
        CLEAN_Q=clean_q,
        CLEAN_D=clean_d,
        LSE2=lse2,
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
        ROWS=ROWS,
        HAS_D_LSE=d_lse is not None,
        CLEAN=clean,
    )
    return Operands(replace(p, q=clean_q, k=k, v=v)), PreparedUpstream(clean_d, lse2, delta)
