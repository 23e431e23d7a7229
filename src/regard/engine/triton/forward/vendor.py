"""NVIDIA's attention kernels through PyTorch: the fastest forward for plain calls that they support. They
return the lse.

On Hopper FlashAttention takes half as long again as cuDNN. But cuDNN autotunes each new shape: 40 ms, or
three times that with gradients. Many prompts take less time than that, and every prompt and every decoding
step may have a new length. So cuDNN runs calls with enough work, up to lengths where our own kernel is
faster. The choice depends on shapes only, not on earlier calls: the same call gives the same bits.
"""

from __future__ import annotations

from functools import cache, partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders
from regard.engine.triton import hopper
from regard.engine.triton.configs import generation
from regard.engine.triton.replay.calls import replay_or_call
from regard.engine.triton.support import MAX_DECODE_QUERIES

__all__ = ["applicable", "forward", "plain", "worth_autotuning"]

# Operators without a public name. If one is missing, scaled_dot_product_attention chooses a kernel.
CUDNN = "_scaled_dot_product_cudnn_attention"
FLASH = "_scaled_dot_product_flash_attention"
WIDEST = 128
# From compute capability 9 on cuDNN is ahead of FlashAttention 2.
CUDNN_FROM = 9
# The work that takes FlashAttention a tenth of a millisecond on an H200. Below it, Python takes longer than
# the device.
AUTOTUNE_FLOPS = 3.5e10


def applicable(problem: Problem) -> bool:
    """Whether one call of these kernels computes output and lse: no mask, or causal with equal lengths."""
    from regard.engine.sdpa_backend.support import is_plain

    q, v = problem.q, problem.v
    square = problem.mask is None or problem.q_len == problem.k_len
    half = q.dtype in (torch.float16, torch.bfloat16)
    fits = q.shape[-1] == v.shape[-1] and q.shape[-1] % 8 == 0 and q.shape[-1] <= WIDEST
    linear = problem.sink is None and not problem.dropout and problem.scoring.scale > 0
    return q.is_cuda and half and fits and square and linear and is_plain(problem)


def forward(problem: Problem) -> tuple[Float[Tensor, "batch heads q dim"], Float[Tensor, "batch heads q"]]:
    """Output and natural log-sum-exp of an applicable problem."""
    q, k, v = (_packed(x) for x in (problem.q, problem.k, problem.v))
    scale, causal = problem.scoring.scale, problem.mask is not None
    if _has_cudnn(q.device) and worth_autotuning(problem):
        out, lse, *_ = getattr(torch.ops.aten, CUDNN)(q, k, v, None, True, 0.0, causal, False, scale=scale)
    else:
        out, lse, *_ = getattr(torch.ops.aten, FLASH)(q, k, v, 0.0, causal, False, scale=scale)
    return out, lse.reshape(problem.batch, problem.heads, problem.q_len)


def plain(problem: Problem) -> Tensor:
    """The output alone, with PyTorch's own gradient; by our kernel where that is faster and no gradient is
    wanted."""
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (problem.q, problem.k, problem.v))
    if (
        not learns
        and applicable(problem)
        and worth_autotuning(problem)
        and hopper.faster_than_vendor(problem)
    ):
        return replay_or_call(problem, (), "plain", partial(_ours, problem))
    q, k, v = (_packed(x) for x in (problem.q, problem.k, problem.v))
    scale, causal = problem.scoring.scale, problem.mask is not None
    if applicable(problem) and _has_cudnn(q.device):
        if worth_autotuning(problem):
            return getattr(torch.ops.aten, CUDNN)(q, k, v, None, learns, 0.0, causal, False, scale=scale)[0]
        return getattr(torch.ops.aten, FLASH)(q, k, v, 0.0, causal, False, scale=scale)[0]
    return F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=problem.group > 1
    )


def _ours(problem: Problem) -> Tensor:
    from regard.engine.triton.forward.launch import forward as ours

    return ours(problem, Riders()).out


def worth_autotuning(problem: Problem) -> bool:
    """Whether cuDNN runs an applicable problem, unless our kernel does: it has enough work, and is no
    decoding step, which has a new length each time.

    Compiled code has one shape, so there cuDNN runs every call.
    """
    if torch.compiler.is_compiling():
        return True
    cells = problem.batch * problem.heads * problem.q_len * problem.k_len
    flops = 4 * cells * problem.q.shape[-1] * (1.0 if problem.mask is None else 0.5)
    return problem.q_len > MAX_DECODE_QUERIES and flops > AUTOTUNE_FLOPS


@cache
def _has_cudnn(device: torch.device) -> bool:
    new = generation(device) >= CUDNN_FROM
    return new and hasattr(torch.ops.aten, CUDNN) and torch.backends.cudnn.is_available()


def _packed(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
