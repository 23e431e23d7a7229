"""One differentiable function for every backend: forward keeps (out, lse), backward recomputes the rest."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.engine import native
from regard.engine import sdpa_backend as fused
from regard.engine.few_rows import few_rows, widened
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.scoring import Scoring
from regard.engine.torch_backward import Upstream, backward
from regard.engine.torch_forward import NOBODY, forward
from regard.engine.triton import attending, vendor

__all__ = ["attend"]


def attend(problem: Problem, backend: str, riders: Riders = NOBODY) -> Streamed:
    """Run a problem on a backend, differentiable in q, k, v, sink, bias and score parameters.

    Gradients flow from out, lse, columns and entropy; the other riders carry none.
    """
    tensors = (problem.q, problem.k, problem.v, problem.sink, riders.columns, *problem.scoring.parameters())
    with _uncast(problem):
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
            return Streamed(*_Attend.apply(problem, backend, riders, *tensors))
        return _run(problem, backend, riders)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        problem: Problem,
        backend: str,
        riders: Riders,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        columns: Tensor | None,
        *rest: Tensor,
    ):
        result = _run(problem, backend, riders)
        ctx.problem, ctx.backend = problem, backend
        ctx.set_materialize_grads(False)
        saved = (q, k, v, sink, columns, result.out, result.lse, result.columns, result.entropy, *rest)
        ctx.save_for_backward(*saved)
        differentiable = ("out", "lse", "columns", "entropy")
        idle = [x for name, x in vars(result).items() if isinstance(x, Tensor) and name not in differentiable]
        ctx.mark_non_differentiable(*idle)
        return tuple(vars(result).values())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor | None, d_lse, d_columns, d_entropy, *_: None):
        with _uncast(ctx.problem):
            return _Attend._backward(ctx, d_out, d_lse, d_columns, d_entropy)

    @staticmethod
    def _backward(ctx: Any, d_out: Tensor | None, d_lse, d_columns, d_entropy):
        q, k, v, sink, columns, out, lse, mixed, entropy, *rest = ctx.saved_tensors
        problem = replace(ctx.problem, q=q, k=k, v=v, sink=sink, scoring=_detached(ctx.problem.scoring))
        d_out = torch.zeros_like(out) if d_out is None else d_out
        wide = few_rows(problem)
        if wide:
            problem, seen = widened(problem, Riders(columns, entropy=entropy is not None))
            out, lse, mixed, entropy, d_out = seen.out, seen.lse, seen.columns, seen.entropy, d_out.float()
        # The fused operator has no place for a gradient of lse; the streamed backward has, and is as exact.
        if ctx.backend == "triton" and not wide and d_columns is None and d_entropy is None:
            from regard.engine.triton.backward import backward as fused_backward

            dq, dk, dv, d_sink = fused_backward(problem, out, lse, d_out, d_lse)
            return None, None, None, dq, dk, dv, d_sink, None, *([None] * len(rest))
        fusable = ctx.backend in ("sdpa", "native") and not (q.is_cuda or wide)
        if fusable and d_lse is None and d_columns is None and d_entropy is None:
            dq, dk, dv, d_sink = fused.backward(problem, out, lse, d_out.contiguous())
            return None, None, None, dq, dk, dv, d_sink, None, *([None] * len(rest))
        if d_columns is not None:
            # Extra columns are values like the others; they only come back under another name.
            problem = replace(problem, v=torch.cat([problem.v, columns.to(problem.v.dtype)], -1))
            out, d_out = (
                torch.cat([out, mixed.to(out.dtype)], -1),
                torch.cat([d_out, d_columns.to(out.dtype)], -1),
            )
        grads = backward(problem, Streamed(out, lse, entropy=entropy), Upstream(d_out, d_lse, d_entropy))
        dv, d_extra = grads.v[..., : v.shape[-1]], None
        if d_columns is not None:
            d_extra = grads.v[..., v.shape[-1] :].to(columns.dtype)
        dq, dk, dv = grads.q.to(q.dtype), grads.k.to(k.dtype), dv.to(v.dtype)
        return None, None, None, dq, dk, dv, grads.sink, d_extra, *grads.parameters


def _run(problem: Problem, backend: str, riders: Riders) -> Streamed:
    if backend == "triton":
        return attending.attend(problem, riders)
    if backend == "native":
        return native.attend(problem, riders)
    if backend == "sdpa":
        return Streamed(*(vendor.forward(problem) if problem.q.is_cuda else fused.forward(problem)))
    return forward(problem, riders)


def _uncast(problem: Problem) -> AbstractContextManager[Any]:
    """Inputs have been cast by now; inside, autocast would lower the sums that are kept in float32."""
    kind = problem.q.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _detached(scoring: Scoring) -> Scoring:
    bias = scoring.bias
    return replace(scoring, bias=bias.detach()) if isinstance(bias, Tensor) else scoring
