"""Gradients of heads with large scores, computed in float64; those of other heads in the dtype of the call.

A backward pass recomputes the weights as exp(s - lse). A float32 lse near 1,500 is off by up to 6e-5, so
every gradient of that row would be off by as much; eager softmax has no such error. The choice is made for
each batch row and each head of keys separately, so a head has the same bits alone and among others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.engine.large_rows import LARGEST

__all__ = ["apart"]

Gradients = tuple[Tensor | None, ...]
# Computes the gradients for given upstream gradients: in float64 if asked, otherwise in the dtype of the
# call.
Compute = Callable[[Sequence[Tensor | None], bool], Gradients]
# Gradients of q, k, v and extra columns belong to heads; all others are sums over heads.
OF_HEADS = (0, 1, 2, 4)


def apart(
    lse: Float[Tensor, "batch heads q"], group: int, up: Sequence[Tensor | None], compute: Compute
) -> Gradients:
    """The gradients of q, k, v, sink, columns and parameters, for the gradients `up` that arrive."""
    large = _large(lse, group)
    if large is None:
        return compute(up, False)
    wide = compute(_only(large, up), True)
    if bool(large.all()):
        return wide
    plain = compute(_only(~large, up), False)
    return tuple(map(partial(_joined, large), range(len(wide)), wide, plain))


def _large(lse: Float[Tensor, "batch heads q"], group: int) -> Bool[Tensor, "batch kv_heads 1"] | None:
    """Which batch rows and heads of keys have a row with too large scores; None if none has."""
    if lse.dtype == torch.float64 or not lse.numel():
        return None
    rows = (lse.abs() > LARGEST[lse.dtype]) & lse.isfinite()
    if not bool(rows.any()):
        return None
    return rows.any(-1).unflatten(1, (-1, group)).any(-1, keepdim=True)


def _only(heads: Tensor, up: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The incoming gradients of some heads, and zeros for the others."""
    return [None if x is None else x.where(_beside(heads, x), 0.0) for x in up]


def _joined(large: Tensor, number: int, wide: Tensor | None, plain: Tensor | None) -> Tensor | None:
    """One gradient of all heads from those of the large and those of the others."""
    if wide is None or plain is None:
        return None
    return wide.where(_beside(large, wide), plain) if number in OF_HEADS else wide + plain


def _beside(heads: Bool[Tensor, "batch kv_heads 1"], x: Tensor) -> Bool[Tensor, "batch heads ..."]:
    """For each head of x, whether its head of keys is one of these."""
    each = heads.expand(-1, -1, x.shape[1] // heads.shape[1]).flatten(1)
    return each.view(*each.shape, *(1,) * (x.ndim - 2))
