"""The operators `regard::attention` and `regard::attention_backward`, which tracers record for a call.

Everything but q, k and v is packed into a string, numbers and tensors. Nothing is validated during tracing;
the operators validate when they run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from regard.engine.autograd import attend, output, resumed
from regard.engine.backend import Backend
from regard.engine.dispatch import choose
from regard.engine.inputs import Options, problem_of
from regard.engine.operators.packing import Packed, unpack
from regard.engine.problem import Problem, sum_dtype
from regard.engine.riders import Streamed
from regard.errors import BackendError
from regard.masks import Mask
from regard.memo import Recent

__all__ = ["attention_operator"]

# Masks that hold tensors, by these tensors. Storages are referenced weakly, because an address may be reused.
_masks: Recent[tuple[list[StorageWeakRef], Mask]] = Recent(16)


@torch.library.custom_op("regard::attention", mutates_args=())
def attention_operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: Sequence[Tensor],
    held: Sequence[Tensor],
    seed: Tensor | None,
    numbers: Sequence[int],
    reals: Sequence[float],
    form: str,
    mask: str,
    backend: str,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp of every row if a gradient is needed and the backend returns it.

    `form` and `tensors` are everything but the mask, packed; `held` are the tensors of the mask. `wanted`
    says which of q, k, v and `tensors` require grad.
    """
    leaves = _leaves((q, k, v, *tensors), wanted)
    learns = any(wanted)
    with _recorded() if learns else nullcontext():
        problem = _problem(leaves, held, seed, numbers, reals, form, mask)
        chosen = choose(problem, backend).backend
    with torch.no_grad():
        if learns and _keeps(chosen, problem):
            result = attend(problem, chosen)
            out, lse = result.out, result.lse.contiguous()
        else:
            out, lse = output(problem, chosen), _room_for_lse(q, learns)
    return _owned(problem.restore(out), q, k, v), lse


@attention_operator.register_fake
def _(q, k, v, tensors, held, seed, numbers, reals, form, mask, backend, wanted):
    return q.new_empty((*q.shape[:-1], v.shape[-1])), _room_for_lse(q, any(wanted))


@torch.library.custom_op("regard::attention_backward", mutates_args=())
def backward_operator(
    up: Tensor,
    out: Tensor,
    lse: Tensor,
    wanted: Sequence[bool],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: Sequence[Tensor],
    held: Sequence[Tensor],
    seed: Tensor | None,
    numbers: Sequence[int],
    reals: Sequence[float],
    form: str,
    mask: str,
    backend: str,
) -> list[Tensor]:
    """The gradients of those of q, k, v and `tensors` that require grad."""
    given = (q, k, v, *tensors)
    leaves = _leaves(given, wanted)
    with _recorded():
        problem = _problem(leaves, held, seed, numbers, reals, form, mask)
        chosen = choose(problem, backend).backend
        if _keeps(chosen, problem):
            again = resumed(problem, chosen, Streamed(_four(out), lse))
        else:
            again = output(problem, chosen)
        inputs = [x for x in leaves if x.requires_grad]
        found = torch.autograd.grad(problem.restore(again), inputs, up, allow_unused=True)
    return [
        torch.zeros_like(x, memory_format=torch.contiguous_format)
        if grad is None
        else _owned(grad, *given, up)
        for x, grad in zip(inputs, found, strict=True)
    ]


@backward_operator.register_fake
def _(up, out, lse, wanted, q, k, v, tensors, *rest):
    given = (q, k, v, *tensors)
    return [x.new_empty(x.shape) for x, want in zip(given, wanted, strict=True) if want]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, tensors, held, seed, *rest, wanted = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.rest, ctx.wanted, ctx.counts = rest, wanted, (len(tensors), len(held))
    ctx.save_for_backward(out, lse, q, k, v, seed, *tensors, *held)


def _backward(ctx: Any, up: Tensor | None, _: Tensor | None):
    out, lse, q, k, v, seed, *others = ctx.saved_tensors
    count = ctx.counts[0]
    tensors, held = others[:count], others[count:]
    # PyTorch treats an empty list of numbers as a list of tensors, and expects as many gradients.
    idle = [None] * ctx.counts[1], None, *([] if x == [] else None for x in ctx.rest), None
    if up is None:
        return None, None, None, [None] * count, *idle
    if not any(ctx.wanted):
        raise BackendError(
            "this program was traced where nothing needed a gradient, so it has none; trace it with tensors "
            "that require grad, outside of torch.no_grad."
        )
    grads = iter(backward_operator(up, out, lse, ctx.wanted, q, k, v, tensors, held, seed, *ctx.rest))
    dq, dk, dv, *rest = (next(grads) if want else None for want in ctx.wanted)
    return dq, dk, dv, rest, *idle


attention_operator.register_autograd(_backward, setup_context=_setup)


def _problem(
    given: Sequence[Tensor],
    held: Sequence[Tensor],
    seed: Tensor | None,
    numbers: Sequence[int],
    reals: Sequence[float],
    form: str,
    mask: str,
) -> Problem:
    """The packed call, with these q, k, v and tensors."""
    q, k, v, *tensors = given
    numbers = list(numbers)
    found = None if mask == '"none"' else _mask(mask, numbers, held)
    scale, bias, softcap, sink, score, score_mod, dropout = unpack(form, Packed(numbers, reals, tensors))
    options = Options(found, scale, bias, softcap, sink, score, score_mod, dropout)
    return problem_of(q, k, v, options, None if seed is None else int(seed))


def _mask(form: str, numbers: list[int], held: Sequence[Tensor]) -> Mask:
    """The packed mask; its numbers are removed from `numbers`.

    Masks are cached by their tensors: layers share a mask, and results derived from it are cached with it.
    """
    count = form.count('"i"')
    own = numbers[:count]
    del numbers[:count]
    if any(x.is_inference() for x in held):
        return unpack(form, Packed(own, [], list(held)))
    key = form, tuple(own), tuple(map(_identity, held))
    known = _masks.get(key)
    if known is None or any(storage.expired() for storage in known[0]):
        storages = [StorageWeakRef(x.untyped_storage()) for x in held]
        known = _masks[key] = storages, unpack(form, Packed(own, [], list(held)))
    return known[1]


def _identity(x: Tensor) -> Hashable:
    place = x.untyped_storage()._cdata, x.storage_offset(), x.stride()
    return *place, x.shape, x.dtype, x.device, x._version


def _keeps(backend: Backend, problem: Problem) -> bool:
    """Whether the output and the log-sum-exp of the operator suffice to compute the gradients."""
    return backend.hides_lse(problem) is None and not backend.wants_float32(problem)


def _leaves(given: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor]:
    """Detach the tensors but keep their `requires_grad`, because the choice of a backend may depend on it."""
    return [x.detach().requires_grad_(want) for x, want in zip(given, wanted, strict=True)]


@contextmanager
def _recorded() -> Iterator[None]:
    """Enable autograd inside an operator, where PyTorch disables it."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    keys = torch._C.DispatchKey
    for key in (keys.AutogradFunctionality, keys.AutogradOther, keys.AutogradNestedTensor):
        exclude = exclude.remove(key)
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        yield


def _room_for_lse(q: Tensor, wanted: bool) -> Tensor:
    """A buffer for the log-sum-exp of every row, in the engine's layout; empty if it is not needed."""
    if not wanted:
        return q.new_empty(0)
    lead = q.shape[:2] if q.ndim == 4 else (q.shape[0], 1) if q.ndim == 3 else (1, 1)
    return q.new_empty((*lead, q.shape[-2]), dtype=sum_dtype(q.dtype))


def _four(x: Tensor) -> Tensor:
    return x if x.ndim == 4 else x.unsqueeze(1) if x.ndim == 3 else x[None, None]


def _owned(x: Tensor, *inputs: Tensor) -> Tensor:
    """A contiguous tensor, as the fake implementation promises, in memory that no input shares."""
    x = x.contiguous()
    taken = {other.untyped_storage()._cdata for other in inputs}
    return x.clone() if x.untyped_storage()._cdata in taken else x
