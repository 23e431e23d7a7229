"""One differentiable function for every backend: forward keeps (out, lse), backward recomputes the rest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.engine import native
from regard.engine import sdpa_backend as fused
from regard.engine.few_rows import few_rows, in_float32, widened
from regard.engine.large_gradients import apart
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.scoring import Scoring
from regard.engine.second_order import Inputs, backward_twice
from regard.engine.torch_backward import Upstream, backward
from regard.engine.torch_forward import NOBODY, forward
from regard.engine.triton.forward import dispatch, vendor

__all__ = ["attend", "followed"]


def attend(problem: Problem, backend: str, riders: Riders = NOBODY) -> Streamed:
    """Run a problem on a backend, differentiable in q, k, v, sink, columns, bias and score parameters.

    Gradients of any order flow from out, lse, columns and entropy; the other riders carry none.
    """
    wide = in_float32(problem, backend)
    if wide is not None:
        result = attend(wide, backend, riders)
        return replace(result, out=result.out.to(problem.q.dtype))
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
    def backward(ctx: Any, d_out: Tensor | None, d_lse, d_columns, d_entropy, *_: None):
        up, saved = (d_out, d_lse, d_columns, d_entropy), ctx.saved_tensors
        if torch.is_grad_enabled():
            # With create_graph=True the gradients get a graph, and so a gradient of their own.
            return None, None, None, *_Backward.apply(ctx.problem, ctx.backend, *up, *saved)
        return None, None, None, *_gradients(ctx.problem, ctx.backend, up, saved)


class _Backward(torch.autograd.Function):
    """The backward pass as a function that can be differentiated itself."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, backend: str, *tensors: Tensor | None):
        ctx.problem = problem
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return _gradients(problem, backend, tensors[:4], tensors[4:])

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None):
        up, (q, k, v, sink, columns, out, lse, _, _, *rest) = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        inputs = Inputs(q, k, v, sink, columns, tuple(rest))
        with _uncast(ctx.problem):
            found, of_up = backward_twice(ctx.problem, inputs, Streamed(out, lse), up, given)
        # What the forward pass returned follows from its inputs, whose gradients these are.
        grads = (*of_up, *found[:5], None, None, None, None, *found[5:])
        cast = (None if g is None else g.to(x.dtype) for g, x in zip(grads, ctx.saved_tensors, strict=True))
        return None, None, *cast


def _gradients(
    problem: Problem, backend: str, up: Sequence[Tensor | None], saved: Sequence[Any]
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, sink, columns and the parameters, from what `_Attend` saved."""
    if backend == "triton":
        return _computed(problem, backend, saved, up)
    return apart(saved[6], problem.group, up, partial(_computed, problem, backend, saved))


def _computed(
    problem: Problem,
    backend: str,
    saved: Sequence[Any],
    up: Sequence[Tensor | None],
    in_float64: bool = False,
) -> tuple[Tensor | None, ...]:
    """The same in float64, or in the dtype of the call."""
    (d_out, d_lse, d_columns, d_entropy) = up
    q, k, v, sink, columns, out, lse, mixed, entropy, *rest = saved
    problem = replace(problem, q=q, k=k, v=v, sink=sink, scoring=_detached(problem.scoring))
    d_out = torch.zeros_like(out) if d_out is None else d_out
    none = [None] * (1 + len(rest))
    with _uncast(problem):
        wide = torch.float64 if in_float64 else torch.float32 if few_rows(problem) else None
        if wide is not None:
            problem, seen = widened(problem, Riders(columns, entropy=entropy is not None), wide)
            out, lse, mixed, entropy, d_out = seen.out, seen.lse, seen.columns, seen.entropy, d_out.to(wide)
        # The fused operator has no place for a gradient of lse; the streamed backward has, and is as exact.
        if backend == "triton" and wide is None and d_columns is None and d_entropy is None:
            from regard.engine.triton.backward.launch import backward as fused_backward

            return *fused_backward(problem, out, lse, d_out, d_lse), *none
        fusable = backend in ("sdpa", "native") and not q.is_cuda and wide is None
        if fusable and d_lse is None and d_columns is None and d_entropy is None:
            return *fused.backward(problem, out, lse, d_out.contiguous()), *none
        if d_columns is not None and mixed is not None:
            # Extra columns are values like the others; they only come back under another name.
            problem = replace(problem, v=torch.cat([problem.v, columns.to(problem.v.dtype)], -1))
            out, d_out = (
                torch.cat([out, mixed.to(out.dtype)], -1),
                torch.cat([d_out, d_columns.to(out.dtype)], -1),
            )
        grads = backward(problem, Streamed(out, lse, entropy=entropy), Upstream(d_out, d_lse, d_entropy))
    dv, more = grads.v.split([v.shape[-1], grads.v.shape[-1] - v.shape[-1]], -1)
    d_g = None if d_columns is None else more.to(columns.dtype)
    dq, dk, dv = grads.q.to(q.dtype), grads.k.to(k.dtype), dv.to(v.dtype)
    return dq, dk, dv, grads.sink, d_g, *grads.parameters


def followed(problem: Problem, out: Tensor) -> Tensor:
    """What PyTorch's own attention returned for a problem, with gradients of every order.

    PyTorch's kernels have no second derivative. The first one stays PyTorch's.
    """
    inputs = (problem.q, problem.k, problem.v)
    if not out.requires_grad or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return out
    return _Plain.apply(problem, out, *inputs)  # pyright: ignore[reportReturnType]


class _Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, problem: Problem, out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.problem = problem
        ctx.save_for_backward(q, k, v)
        return out.detach()

    @staticmethod
    def backward(ctx: Any, d_out: Tensor):
        if not torch.is_grad_enabled():
            return None, d_out, None, None, None
        # Views: the same tensor may be query, key and value, and has a gradient as each of them.
        q, k, v = (x.view_as(x) for x in ctx.saved_tensors)
        again = attend(replace(ctx.problem, q=q, k=k, v=v), "torch" if q.is_cuda else "sdpa").out
        wanted = [x for x in (q, k, v) if x.requires_grad]
        grads = iter(torch.autograd.grad(again, wanted, d_out, create_graph=True))
        return None, None, *(next(grads) if x.requires_grad else None for x in (q, k, v))


def _run(problem: Problem, backend: str, riders: Riders) -> Streamed:
    if backend == "triton":
        return dispatch.attend(problem, riders)
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
