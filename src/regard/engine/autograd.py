"""The autograd function of all backends: forward saves (out, lse), backward recomputes the weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.engine.backend import Backend, Upstream
from regard.engine.captured import Captured
from regard.engine.dispatch import reference
from regard.engine.few_rows import few_rows, widened
from regard.engine.large_gradients import apart
from regard.engine.problem import Problem
from regard.engine.riders import NO_RIDERS, Riders, Streamed
from regard.engine.scoring import Scoring
from regard.engine.second_order import Inputs, backward_twice

__all__ = ["attend", "output", "resumed"]


def attend(problem: Problem, backend: Backend, riders: Riders = NO_RIDERS) -> Streamed:
    """Run a problem on a backend, differentiable in q, k, v, sink, columns, bias and score parameters.

    Gradients of any order flow from out, lse, columns and entropy; the other riders carry none.
    """
    if backend.wants_float32(problem):
        result = attend(widened(problem, torch.float32), backend, riders)
        return replace(result, out=result.out.to(problem.q.dtype))
    tensors = (problem.q, problem.k, problem.v, problem.sink, riders.columns, *problem.scoring.parameters())
    with _uncast(problem):
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
            result = Streamed(*_Attend.apply(problem, backend, riders, *tensors))
        else:
            result = backend.forward(problem, riders)
    # Rounded here and not by the backend, whose backward pass reads the output.
    return replace(result, out=result.out.to(problem.q.dtype))


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        problem: Problem,
        backend: Backend,
        riders: Riders,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        columns: Tensor | None,
        *rest: Tensor,
    ):
        result = backend.forward(problem, riders)
        return _kept(ctx, problem, backend, result, q, k, v, sink, columns, *rest)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, d_lse, d_columns, d_entropy, *_: None):
        up, saved = (d_out, d_lse, d_columns, d_entropy), ctx.saved_tensors
        if ctx.captured is not None:
            ctx.captured.check()
        if torch.is_grad_enabled():
            # With create_graph=True the gradients get a graph, and so a gradient of their own.
            return None, None, None, *_Backward.apply(ctx.problem, ctx.backend, *up, *saved)
        return None, None, None, *_gradients(ctx.problem, ctx.backend, up, saved)


def _kept(
    ctx: Any, problem: Problem, backend: Backend, result: Streamed, *tensors: Tensor | None
) -> tuple[Any, ...]:
    """Save the result of a forward for the backward pass."""
    ctx.problem, ctx.backend = problem, backend
    ctx.captured = _captured(problem)
    ctx.set_materialize_grads(False)
    inputs, rest = tensors[:5], tensors[5:]
    ctx.save_for_backward(*inputs, result.out, result.lse, result.columns, result.entropy, *rest)
    differentiable = ("out", "lse", "columns", "entropy")
    idle = [x for name, x in vars(result).items() if isinstance(x, Tensor) and name not in differentiable]
    ctx.mark_non_differentiable(*idle)
    return tuple(vars(result).values())


def _captured(problem: Problem) -> Captured | None:
    """What the functions of a problem read besides its tensors; None if it has none."""
    return Captured(problem.scoring, problem.mask, problem.q, problem.k) if problem.asks else None


def resumed(problem: Problem, backend: Backend, result: Streamed) -> Tensor:
    """The output of an earlier forward, made differentiable in the tensors of the problem."""
    tensors = (problem.q, problem.k, problem.v, problem.sink, None, *problem.scoring.parameters())
    return _Resume.apply(problem, backend, result, *tensors)[0]  # pyright: ignore[reportIndexIssue]


class _Resume(_Attend):
    """`_Attend` with a given result: only its backward pass computes."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, backend: Backend, result: Streamed, *tensors: Tensor | None):
        return _kept(ctx, problem, backend, result, *tensors)


class _Backward(torch.autograd.Function):
    """The backward pass as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, backend: Backend, *tensors: Tensor | None):
        ctx.problem, ctx.captured = problem, _captured(problem)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return _gradients(problem, backend, tensors[:4], tensors[4:])

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None):
        if ctx.captured is not None:
            ctx.captured.check()
        up, (q, k, v, sink, columns, out, lse, _, _, *rest) = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        inputs = Inputs(q, k, v, sink, columns, tuple(rest))
        with _uncast(ctx.problem):
            found, of_up = backward_twice(ctx.problem, inputs, Streamed(out, lse), up, given)
        # Don't differentiate through the saved outputs: their dependence on the inputs is included here.
        grads = (*of_up, *found[:5], None, None, None, None, *found[5:])
        cast = (None if g is None else g.to(x.dtype) for g, x in zip(grads, ctx.saved_tensors, strict=True))
        return None, None, *cast


def _gradients(
    problem: Problem, backend: Backend, up: Sequence[Tensor | None], saved: Sequence[Any]
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, sink, columns and the parameters, from what `_Attend` saved."""
    if backend.ignores_large_scores:
        return _computed(problem, backend, saved, up)
    return apart(saved[6], problem.group, up, partial(_computed, problem, backend, saved))


def _computed(
    problem: Problem,
    backend: Backend,
    saved: Sequence[Any],
    up: Sequence[Tensor | None],
    in_float64: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients, computed in float64 where scores are large, otherwise in the dtype of the call."""
    (d_out, d_lse, d_columns, d_entropy) = up
    q, k, v, sink, columns, out, lse, mixed, entropy, *rest = saved
    problem = replace(problem, q=q, k=k, v=v, sink=sink, scoring=_detached(problem.scoring))
    result = Streamed(out, lse, columns=mixed, entropy=entropy)
    above = Upstream(torch.zeros_like(out) if d_out is None else d_out, d_lse, d_columns, d_entropy)
    riders = Riders(columns, entropy=entropy is not None)
    grads = None
    with _uncast(problem):
        wide = torch.float64 if in_float64 else torch.float32 if few_rows(problem) else None
        if wide is not None:
            problem = widened(problem, wide)
            result = reference().forward(problem, riders)
            above = replace(above, out=above.out.to(wide))
        elif backend.has_backward:
            grads = backend.backward(problem, riders, result, above)
        if grads is None:
            grads = reference().backward(problem, riders, result, above)
    if grads is None:
        raise RuntimeError("the reference backend must compute every gradient")
    dq, dk, dv = grads.q.to(q.dtype), grads.k.to(k.dtype), grads.v.to(v.dtype)
    return dq, dk, dv, grads.sink, grads.columns, *(grads.parameters or [None] * len(rest))


def output(problem: Problem, backend: Backend) -> Tensor:
    """The output alone, by the backend's fastest way, with gradients of every order.

    PyTorch's kernels have no second derivative: the first comes from PyTorch, the second from `attend`.
    """
    out = backend.output(problem)
    if out is None:
        return attend(problem, backend).out
    if not out.requires_grad or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return out
    again = backend if backend.has_backward else reference()
    return _Plain.apply(problem, again, out, problem.q, problem.k, problem.v)  # pyright: ignore[reportReturnType]


class _Plain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, problem: Problem, again: Backend, out: Tensor, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        ctx.problem, ctx.again = problem, again
        ctx.save_for_backward(q, k, v)
        return out.detach()

    @staticmethod
    def backward(ctx: Any, d_out: Tensor):
        if not torch.is_grad_enabled():
            return None, None, d_out, None, None, None
        # Views, because the same tensor may be query, key and value, and has a gradient as each of them.
        q, k, v = (x.view_as(x) for x in ctx.saved_tensors)
        again = attend(replace(ctx.problem, q=q, k=k, v=v), ctx.again).out
        wanted = [x for x in (q, k, v) if x.requires_grad]
        grads = iter(torch.autograd.grad(again, wanted, d_out, create_graph=True))
        return None, None, None, *(next(grads) if x.requires_grad else None for x in (q, k, v))


def _uncast(problem: Problem) -> AbstractContextManager[Any]:
    """Turn autocast off: inputs are already cast, and autocast would lower the float32 sums."""
    kind = problem.q.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _detached(scoring: Scoring) -> Scoring:
    bias = scoring.bias
    return replace(scoring, bias=bias.detach()) if isinstance(bias, Tensor) else scoring
