"""One differentiable function for every backend: forward keeps (out, lse), backward recomputes the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.engine import sdpa_backend as fused
from regard.engine.problem import Problem
from regard.engine.scoring import Scoring
from regard.engine.torch_backward import backward
from regard.engine.torch_forward import forward

__all__ = ["attend"]


def attend(problem: Problem, backend: str) -> tuple[Tensor, Tensor]:
    """(out, lse) of a problem on a backend, differentiable in q, k, v, sink, bias and score parameters."""
    return _Attend.apply(
        problem, backend, problem.q, problem.k, problem.v, problem.sink, *problem.scoring.parameters()
    )


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        problem: Problem,
        backend: str,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        *rest: Tensor,
    ):
        if backend == "sdpa":
            out, lse = fused.forward(problem)
        else:
            result = forward(problem)
            out, lse = result.out, result.lse
        ctx.problem, ctx.backend = problem, backend
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, sink, out, lse, *rest)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None):
        q, k, v, sink, out, lse, *rest = ctx.saved_tensors
        problem = replace(ctx.problem, q=q, k=k, v=v, sink=sink, scoring=_detached(ctx.problem.scoring))
        if d_out is None:
            d_out = torch.zeros_like(out)
        # The fused operator has no place for a gradient of lse; the streamed backward has, and is as exact.
        if ctx.backend == "sdpa" and d_lse is None:
            dq, dk, dv, d_sink = fused.backward(problem, out, lse, d_out.contiguous())
            return None, None, dq, dk, dv, d_sink, *([None] * len(rest))
        grads = backward(problem, out, lse, d_out, d_lse)
        return None, None, grads.q, grads.k, grads.v, grads.sink, *grads.parameters


def _detached(scoring: Scoring) -> Scoring:
    bias = scoring.bias.detach() if isinstance(scoring.bias, Tensor) else scoring.bias
    return replace(scoring, bias=bias)
