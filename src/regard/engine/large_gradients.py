"""Gradients of heads with large scores, computed in float64; those of other heads in the dtype of the call.

A backward pass recomputes the weights as exp(s - lse). A float32 lse near 1,500 has an error of up to 6e-5,
and so would every gradient of that row; eager softmax has no such error. The choice is made separately for
each batch row and key head, so a head has the same bits alone and among others.
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
# (upstream gradients, in float64?) -> gradients. Without float64, in the dtype of the call.
Compute = Callable[[Sequence[Tensor | None], bool], Gradients]
# The gradients that have a head axis; all others are sums over heads.
OF_HEADS = (0, 1, 2, 4)


def apart(
    lse: Float[Tensor, "batch heads q"], group: int, up: Sequence[Tensor | None], compute: Compute
) -> Gradients:
    """The gradients of q, k, v, sink, columns and parameters, for the upstream gradients `up`."""
    large = _large(lse, group)
    if large is None:
        return compute(up, False)
    wide = compute(_only(large, up), True)
    if bool(large.all()):
        return wide
    plain = compute(_only(~large, up), False)
    return tuple(map(partial(_joined, large), range(len(wide)), wide, plain))


def _large(lse: Float[Tensor, "batch heads q"], group: int) -> Bool[Tensor, "batch kv_heads 1"] | None:
    """The batch rows and key heads that have a row of large scores; None if there are none."""
    if lse.dtype == torch.float64 or not lse.numel():
        return None
    rows = (lse.abs() > LARGEST[lse.dtype]) & lse.isfinite()
    if not bool(rows.any()):
        return None
    return rows.any(-1).unflatten(1, (-1, group)).any(-1, keepdim=True)


def _only(heads: Tensor, up: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The upstream gradients of some heads, with zeros for the others."""
    return [None if x is None else x.where(_beside(heads, x), 0.0) for x in up]


def _joined(large: Tensor, number: int, wide: Tensor | None, plain: Tensor | None) -> Tensor | None:
    """Join a gradient of the large heads (float64) with that of the other heads."""
    if wide is None or plain is None:
        return None
    return wide.where(_beside(large, wide), plain) if number in OF_HEADS else wide + plain


def _beside(heads: Bool[Tensor, "batch kv_heads 1"], x: Tensor) -> Bool[Tensor, "batch heads ..."]:
    """For each head of x, whether its key head is one of these."""
    each = heads.expand(-1, -1, x.shape[1] // heads.shape[1]).flatten(1)
    return each.view(*each.shape, *(1,) * (x.ndim - 2))
