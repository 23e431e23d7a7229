"""NVIDIA's own attention through PyTorch: the fastest forward for what it can do, and it knows its lse."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders
from regard.engine.triton import hopper
from regard.engine.triton.configs import generation

__all__ = ["applicable", "forward", "plain"]

# Operators without a public name; where one is missing, PyTorch's own choice is as good as any.
CUDNN = "_scaled_dot_product_cudnn_attention"
FLASH = "_scaled_dot_product_flash_attention"
WIDEST = 128
# From compute capability 9 on cuDNN is ahead of FlashAttention 2.
CUDNN_FROM = 9


def applicable(problem: Problem) -> bool:
    """Whether one call of PyTorch's kernels gives output and lse: unmasked, or causal with equal lengths."""
    from regard.engine import sdpa_backend as sdpa

    q, v = problem.q, problem.v
    square = problem.mask is None or problem.q_len == problem.k_len
    half = q.dtype in (torch.float16, torch.bfloat16)
    fits = q.shape[-1] == v.shape[-1] and q.shape[-1] % 8 == 0 and q.shape[-1] <= WIDEST
    linear = problem.sink is None and not problem.dropout and problem.scoring.scale > 0
    return q.is_cuda and half and fits and square and linear and sdpa.is_plain(problem)


def forward(problem: Problem) -> tuple[Float[Tensor, "batch heads q dim"], Float[Tensor, "batch heads q"]]:
    """Output and natural log-sum-exp of an applicable problem."""
    q, k, v = (_packed(x) for x in (problem.q, problem.k, problem.v))
    scale, causal = problem.scoring.scale, problem.mask is not None
    if _has_cudnn(q.device):
        out, lse, *_ = getattr(torch.ops.aten, CUDNN)(q, k, v, None, True, 0.0, causal, False, scale=scale)
    else:
        k, v = (x.repeat_interleave(problem.group, 1) if problem.group > 1 else x for x in (k, v))
        out, lse, *_ = getattr(torch.ops.aten, FLASH)(q, k, v, 0.0, causal, False, scale=scale)
    return out, lse.reshape(problem.batch, problem.heads, problem.q_len)


def plain(problem: Problem) -> Tensor:
    """The output alone, with PyTorch's own gradient; by our kernel where that is ahead and none is wanted."""
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (problem.q, problem.k, problem.v))
    if not learns and applicable(problem) and hopper.ahead(problem):
        from regard.engine.triton.forward import forward as ours

        return ours(problem, Riders()).out
    q, k, v = (_packed(x) for x in (problem.q, problem.k, problem.v))
    scale, causal = problem.scoring.scale, problem.mask is not None
    if applicable(problem) and _has_cudnn(q.device):
        return getattr(torch.ops.aten, CUDNN)(q, k, v, None, learns, 0.0, causal, False, scale=scale)[0]
    return F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=problem.group > 1
    )


@cache
def _has_cudnn(device: torch.device) -> bool:
    new = generation(device) >= CUDNN_FROM
    return new and hasattr(torch.ops.aten, CUDNN) and torch.backends.cudnn.is_available()


def _packed(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
