"""Forward and backward by PyTorch's fused kernels for the CPU.

These kernels can't use the structure of a mask. So each block of queries is a fused call with only the keys
that it can see, gathered. The time of a window or a document mask is proportional to its pairs, at fused
speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem, sum_dtype
from regard.engine.riders import Streamed
from regard.engine.sdpa_backend.calls import Call, calls_of, in_one_call
from regard.engine.sink import with_sink
from regard.engine.sums import add_exp, over_rows
from regard.errors import BackendError

__all__ = ["backward", "forward", "masked", "plain", "plain_of", "with_lse"]

# PyTorch's CPU kernel that also returns the log-sum-exp.
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
# Up to this many rows, the query heads of a group are stacked as rows, so that their keys are read once.
FOLD = 64
# The most heads of a group per call: the kernel adds up their key gradients one after the other, and every
# addition rounds.
IN_A_ROW = 32


def plain(problem: Problem) -> Tensor:
    """PyTorch's own attention, with its own gradient."""
    return plain_of(problem.q, problem.k, problem.v, problem.mask is not None, problem.scoring.scale)


def plain_of(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """`plain` for the tensors of a call without other options."""
    q, k, v = map(_packed, (q, k, v))
    grouped = q.shape[1] > k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped)


def forward(problem: Problem) -> tuple[Float[Tensor, "batch heads q dim"], Float[Tensor, "batch heads q"]]:
    """Output and log-sum-exp of every row."""
    if problem.sink is None:
        return _without_sink(problem)
    # In float32, because the sink scales the output afterwards, and it should be rounded only once.
    wide = replace(
        problem, **{name: getattr(problem, name).to(problem.accumulate) for name in ("q", "k", "v")}
    )
    sunk = with_sink(problem.sink, Streamed(*_without_sink(wide)), problem.q.dtype)
    return sunk.out, sunk.lse


def _without_sink(problem: Problem) -> tuple[Tensor, Tensor]:
    if in_one_call(problem):
        [[call]] = calls_of(problem)
        out, lse = _attend(_operator(FORWARD), problem, call)
        return out, (lse if call.dead is None else lse.masked_fill(call.dead, -torch.inf)).contiguous()
    return _by_blocks(problem)


def _by_blocks(problem: Problem) -> tuple[Tensor, Tensor]:
    operator = _operator(FORWARD)
    out = torch.zeros_like(problem.q, memory_format=torch.contiguous_format)
    lse = problem.q.new_full(problem.q.shape[:3], -torch.inf, dtype=problem.accumulate)
    for calls in calls_of(problem):
        for number, call in enumerate(calls):
            part, part_lse = _attend(operator, problem, call)
            if call.dead is not None:
                part_lse = part_lse.masked_fill(call.dead, -torch.inf)
            if number:
                part, part_lse = _merge(call.rows(out), call.rows(lse), part, part_lse)
            call.rows(out).copy_(part)
            call.rows(lse).copy_(part_lse)
    return out, lse


def _attend(operator: Callable[..., Any], problem: Problem, call: Call) -> tuple[Tensor, Tensor]:
    q, k, v = call.rows(problem.q), call.keys(problem.k), call.keys(problem.v)
    return _fused(operator, q, k, v, call.mask, call.causal, problem.scoring.scale)


def with_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp, by one call of the kernel; the latter is 0 where a row sees nothing."""
    operator = _operator(FORWARD)
    if q.shape[1] == k.shape[1] and q.stride(3) == k.stride(3) == v.stride(3) == 1:
        # Nothing to pack and no groups to fold, as in most calls.
        out, lse = operator(q, k, v, 0.0, causal, attn_mask=_as_operand(mask, q), scale=scale)
    else:
        out, lse = _fused(operator, q, k, v, mask, causal, scale)
    return out, lse.contiguous()


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The output under an additive or bool mask, in one call; zeros where a row sees nothing."""
    if q.shape[1] == k.shape[1] and q.stride(3) == k.stride(3) == v.stride(3) == 1:
        # The same kernel, without the way through Python that its operator takes.
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    mask = mask if mask.ndim == 4 else mask[None, None]
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=sum_dtype(q.dtype), device="cpu").masked_fill_(~mask, -torch.inf)
    return _fused(_operator(FORWARD), q, k, v, mask, False, scale)[0]


def _fused(
    operator: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    q, k, v = map(_packed, (q, k, v))
    shape, group = q.shape, q.shape[1] // k.shape[1]
    fold = 1 < group and group * shape[2] <= FOLD and not causal
    if fold:
        q = q.reshape(shape[0], shape[1] // group, group * shape[2], shape[3])
        mask = None if mask is None else _fold_mask(mask, group)
    out, lse = operator(q, k, v, 0.0, causal, attn_mask=_as_operand(mask, q), scale=scale)
    return (out.reshape(shape), lse.reshape(shape[:3])) if fold else (out, lse)


def _fold_mask(mask: Tensor, group: int) -> Tensor:
    if mask.shape[1] == 1:
        return mask.repeat(1, 1, group, 1)
    return mask.reshape(mask.shape[0], mask.shape[1] // group, group * mask.shape[2], mask.shape[3])


def _as_operand(mask: Tensor | None, q: Tensor) -> Tensor | None:
    """Convert a mask to a dtype that the operator accepts: float32 or q's; half precision would round a
    bias."""
    return None if mask is None else mask.to(sum_dtype(q.dtype))


def _merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Merge two partial softmaxes; one that saw nothing (lse -inf) has weight 0."""
    both = add_exp(lse, part_lse)
    safe = both.masked_fill(both == -torch.inf, 0.0)
    weight, part_weight = (lse - safe).exp(), (part_lse - safe).exp()
    merged = out.to(both.dtype) * weight[..., None] + part.to(both.dtype) * part_weight[..., None]
    return merged.to(out.dtype), both


def backward(
    problem: Problem, out: Tensor, lse: Tensor, d_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and the sink, call by call, recomputed from the log-sum-exp of all keys."""
    operator = _operator(f"{FORWARD}_backward")
    dtype = problem.accumulate
    dq = torch.zeros_like(problem.q, dtype=dtype)
    dk, dv = torch.zeros_like(problem.k, dtype=dtype), torch.zeros_like(problem.v, dtype=dtype)
    # exp(s - inf) = 0: a dead row contributes no gradients.
    bound = lse.masked_fill(lse == -torch.inf, torch.inf)
    parts = _parts(problem.group)
    for call in (call for calls in calls_of(problem) for call in calls):
        grads = operator(
            call.rows(d_out),
            _packed(call.rows(problem.q)),
            _apart(_packed(call.keys(problem.k)), parts),
            _apart(_packed(call.keys(problem.v)), parts),
            call.rows(out),
            call.rows(bound),
            0.0,
            call.causal,
            attn_mask=_as_operand(call.mask, problem.q),
            scale=problem.scoring.scale,
        )
        call.rows(dq).add_(grads[0])
        call.add_keys(dk, _together(grads[1], parts))
        call.add_keys(dv, _together(grads[2], parts))
    d_sink = None
    if problem.sink is not None:
        weight = (problem.sink.to(dtype)[:, None] - lse).exp()
        delta = (d_out.to(dtype) * out.to(dtype)).sum(-1)
        d_sink = -over_rows(weight * delta).to(problem.sink.dtype)
    return dq.to(problem.q.dtype), dk.to(problem.k.dtype), dv.to(problem.v.dtype), d_sink


def _parts(group: int) -> int:
    """The least number of equal parts, of at most IN_A_ROW heads each, into which a group can be cut."""
    return next(parts for parts in range(1, group + 1) if group % parts == 0 and group // parts <= IN_A_ROW)


def _apart(x: Float[Tensor, "batch kv_heads k dim"], parts: int) -> Float[Tensor, "batch more k dim"]:
    """Repeat each key head once per part of its group."""
    return x[:, :, None].expand(-1, -1, parts, -1, -1).flatten(1, 2)


def _together(x: Float[Tensor, "batch more k dim"], parts: int) -> Float[Tensor, "batch kv_heads k dim"]:
    return x if parts == 1 else x.unflatten(1, (-1, parts)).sum(2)


def _packed(x: Tensor) -> Tensor:
    """Make rows contiguous: the operators assume it, and otherwise PyTorch's public function would build the
    whole map."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _operator(name: str) -> Callable[..., Any]:
    """A private operator of PyTorch, which a release may remove."""
    try:
        return getattr(torch.ops.aten, name).default
    except AttributeError:
        raise BackendError(f"this PyTorch ({torch.__version__}) lacks {name}; use backend='torch'.") from None
