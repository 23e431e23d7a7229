"""Attention weighted by the norms of values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import ColumnStatistic, State
from regard.stats.tile import Frame

__all__ = ["ValueWeighted", "guarded_columns", "guarded_sums", "values_of"]


@dataclass(frozen=True)
class ValueWeighted(ColumnStatistic):
    """The sum of weights times value norms, Σ_j α_ij ‖v_j‖, of each query (Kobayashi et al., 2020).

    Shape (batch, heads, q). A large weight on a key with a tiny value contributes almost nothing.

    >>> import torch, regard
    >>> q, v = torch.zeros(1, 1, 2, 1), torch.tensor([[[[3.0, 4.0], [0.0, 0.0]]]])
    >>> regard.observe(q, q, v, mask=regard.Causal(), stats=[ValueWeighted()]).value_weighted
    tensor([[[5.0000, 2.5000]]])
    """

    def check(self, frame: Frame) -> None:
        values_of(self, frame)

    def columns(self, frame: Frame) -> Float[Tensor, "batch heads k 2"]:
        values = values_of(self, frame)
        # Zero garbage before computing the norm: the gradient of an infinite norm is NaN, even times 0.
        finite = torch.linalg.vector_norm(values.detach(), dim=-1, dtype=frame.dtype).isfinite()
        norms = torch.linalg.vector_norm(values.where(finite[..., None], 0), dim=-1, dtype=frame.dtype)
        norms = norms.masked_fill(~finite, torch.inf)
        return guarded_columns(norms.repeat_interleave(frame.heads // norms.shape[1], 1))

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q"]:
        return guarded_sums(state["sums"])


def values_of(statistic: object, frame: Frame) -> Float[Tensor, "batch kv_heads k v_dim"]:
    """The values of a map; StatisticError if it was made without."""
    if frame.values is None:
        name = type(statistic).__name__
        raise StatisticError(f"{name} weighs values, and this map has none; give v, or leave {name} out.")
    return frame.values


def guarded_columns(norms: Float[Tensor, "batch heads k"]) -> Float[Tensor, "batch heads k 2"]:
    """Two columns: the finite norms, and flags of those that are not finite. Garbage behind a mask has weight
    0, and 0 * inf would be NaN."""
    finite = norms.isfinite()
    return torch.stack([norms.where(finite, 0), (~finite).to(norms.dtype)], -1)


def guarded_sums(sums: Float[Tensor, "batch heads q 2"]) -> Float[Tensor, "batch heads q"]:
    """The result of sums over `guarded_columns`: NaN only if a query attends to a norm that is not finite."""
    total, garbage = sums.unbind(-1)
    return total.masked_fill(garbage > 0, torch.nan)
