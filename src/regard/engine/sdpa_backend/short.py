"""Passes short calls without options straight to PyTorch's kernel, as validation would take longer than the
kernel.

This handles only calls without errors, gradients and options. For all others it returns None, and the caller
runs them in the ordinary way. Either way, the same kernel gets the same operands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.finite import finite
from regard.engine.problem import sum_dtype
from regard.engine.sdpa_backend.calls import KEPT_CELLS, SHORT, is_kept, whole_mask
from regard.engine.sdpa_backend.kernels import masked, plain_of
from regard.engine.sdpa_backend.support import needs_finite
from regard.engine.transformed import may_be_transformed
from regard.masks import Causal, Coverage, Mask
from regard.masks.settled import settled
from regard.memo import Recent, holds_tensors, is_value, key_of

__all__ = ["short_output", "suits"]

WIDE = (torch.float32, torch.float64)
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Known:
    """A mask in the kernel's form: no mask, the causal flag, or a tensor, additive or bool, of two dimensions
    or four."""

    causal: bool = False
    mask: Tensor | None = None


NOTHING, CAUSAL = _Known(), _Known(causal=True)


def short_output(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, scale: float | None
) -> Tensor | None:
    """The output, without a graph; None if the call must be run in the ordinary way.

    A mask is a mask or a bool tensor that broadcasts to (batch, heads, q, k), True = may attend.
    """
    if not suits(q, k, v):
        return None
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[3])
    elif not 0.0 < scale < math.inf:
        return None
    known = _known_of(mask, q, k)
    if known is None or (needs_finite(known is not NOTHING, k.shape[2], q.dtype) and not finite(q, k, v)):
        return None
    if known.mask is None:
        return plain_of(q, k, v, known.causal, scale)
    if q.dtype in WIDE:
        return masked(q, k, v, known.mask, scale)
    return masked(q.float(), k.float(), v.float(), known.mask, scale).to(q.dtype)


def suits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether three tensors are a valid call on the CPU that needs no gradient."""
    if not (q.is_cpu and k.is_cpu and v.is_cpu):
        return False
    of_q, of_k, dtype = q.shape, k.shape, q.dtype
    if not (len(of_q) == len(of_k) == 4 and v.shape == of_k and dtype == k.dtype == v.dtype):
        return False
    if of_q[0] != of_k[0] or of_q[3] != of_k[3] or 0 in of_q or 0 in of_k or of_q[1] % of_k[1]:
        return False
    if not (dtype in WIDE or dtype in HALF) or torch.is_autocast_enabled("cpu"):
        return False
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    return not may_be_transformed()


def _known_of(mask: Mask | Tensor | None, q: Tensor, k: Tensor) -> _Known | None:
    """A mask in the kernel's form; None if it is not cached and must be evaluated."""
    if mask is None:
        return NOTHING
    of_q, k_len = q.shape, k.shape[2]
    cells = (of_q[0], of_q[1], of_q[2], k_len)
    if isinstance(mask, Tensor):
        return _of_tensor(mask, cells)
    if type(mask) is Causal and mask.shift == of_q[2] - k_len:
        return CAUSAL
    if not _may_be_kept(mask, of_q, k_len):
        return None
    value = key_of(mask)
    if value is None:
        known = settled(mask.bind(*of_q[:2])) if of_q[1] * of_q[2] * k_len <= KEPT_CELLS else None
        if known is None:
            return None
        mask, value = known, key_of(known)
    key = (value, of_q, k_len, q.dtype)
    kept = _kept.get(key)
    if kept is None:
        kept = _made(mask, cells, sum_dtype(q.dtype), holds_tensors(value))
        _kept[key] = kept
    elif kept.holds:
        # Raises if a tensor of the mask was written to, which no key notices by itself.
        mask.bind(*of_q[:2])
    return kept.known


def _may_be_kept(mask: Mask, of_q: torch.Size, k_len: int) -> bool:
    """Whether a mask is small enough for a cache, and belongs to more than one batch.

    Of longer causal calls it is only known whether the mask hides anything.
    """
    batch, heads, q_len, _ = of_q
    if type(mask) is Causal:
        return True
    if max(q_len, k_len) > SHORT and q_len != 1:
        return False
    few = heads * q_len * k_len <= KEPT_CELLS
    return mask.batch is None and (few or is_kept(mask, (batch, heads, q_len, k_len)))


@dataclass(frozen=True)
class _Kept:
    """What is known of a mask: its form, or None for one to be evaluated; whether it holds tensors."""

    known: _Known | None
    holds: bool


_kept: Recent[_Kept] = Recent(32)


def _made(mask: Mask, shape: tuple[int, int, int, int], sums: torch.dtype, holds: bool) -> _Kept:
    bound = mask.bind(*shape[:2])
    suits = bound.batch is None and is_value(bound)
    return _Kept(_of_value(bound, shape, sums) if suits else None, holds)


def _of_value(mask: Mask, shape: tuple[int, int, int, int], sums: torch.dtype) -> _Known | None:
    batch, heads, q_len, k_len = shape
    mask.check(q_len, k_len, batch, heads)
    if mask.coverage((k_len - q_len, k_len), (0, k_len)) is Coverage.FULL:
        return NOTHING
    if max(q_len, k_len) > SHORT:
        return None
    return _Known(mask=whole_mask(mask, shape, k_len - q_len, sums)[0])


def _of_tensor(mask: Tensor, shape: tuple[int, int, int, int]) -> _Known | None:
    """A bool tensor in the kernel's form; not cached, because the tensor may change before the next call."""
    if type(mask) is not Tensor or mask.dtype is not torch.bool or not mask.is_cpu:
        return None
    of_mask = mask.shape
    if of_mask[-2:] != shape[2:] or shape[2] > SHORT or shape[3] > SHORT:
        return None
    if len(of_mask) == 4:
        fits = of_mask[0] in (1, shape[0]) and of_mask[1] in (1, shape[1])
        return _Known(mask=mask) if fits else None
    return _Known(mask=mask) if len(of_mask) == 2 else None
