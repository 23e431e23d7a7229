"""Attention weighed by the size of what it brings."""

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
    """How much each query takes in: weights times the sizes of values, Σ_j α_ij ‖v_j‖ (Kobayashi, 2020).

    Shape (batch, heads, q). A large weight on a key whose value is next to nothing moves nothing.

    >>> import torch, regard
    >>> q, v = torch.zeros(1, 1, 2, 1), torch.tensor([[[[3.0, 4.0], [0.0, 0.0]]]])
    >>> regard.observe(q, q, v, mask=regard.Causal(), stats=[ValueWeighted()]).value_weighted
    tensor([[[5.0000, 2.5000]]])
    """

    def check(self, frame: Frame) -> None:
        values_of(self, frame)

    def columns(self, frame: Frame) -> Float[Tensor, "batch heads k 2"]:
        values = values_of(self, frame)
        # Garbage is zeroed before the norm is taken: the gradient of an infinite norm is NaN, even times 0.
        finite = torch.linalg.vector_norm(values.detach(), dim=-1, dtype=frame.dtype).isfinite()
        norms = torch.linalg.vector_norm(values.where(finite[..., None], 0), dim=-1, dtype=frame.dtype)
        norms = norms.masked_fill(~finite, torch.inf)
        return guarded_columns(norms.repeat_interleave(frame.heads // norms.shape[1], 1))

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q"]:
        return guarded_sums(state["sums"])


def values_of(statistic: object, frame: Frame) -> Float[Tensor, "batch kv_heads k v_dim"]:
    """The values of a map, or StatisticError if it was made without."""
    if frame.values is None:
        name = type(statistic).__name__
        raise StatisticError(f"{name} weighs values, and this map has none; give v, or leave {name} out.")
    return frame.values


def guarded_columns(norms: Float[Tensor, "batch heads k"]) -> Float[Tensor, "batch heads k 2"]:
    """Norms, and beside them which are not finite: garbage behind a mask has weight 0, and 0 * inf is NaN."""
    finite = norms.isfinite()
    return torch.stack([norms.where(finite, 0), (~finite).to(norms.dtype)], -1)


def guarded_sums(sums: Float[Tensor, "batch heads q 2"]) -> Float[Tensor, "batch heads q"]:
    """What `guarded_columns` sum up to: NaN only where a query does attend to a norm that is not finite."""
    total, garbage = sums.unbind(-1)
    return total.masked_fill(garbage > 0, torch.nan)
