"""A x without the matrix A: any columns, mixed by the weights."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError
from regard.stats import ColumnStatistic, Frame, State
from regard.stats.folds import Fold

__all__ = ["Columns"]

FEW = 8


@dataclass(frozen=True, eq=False)
class Columns(ColumnStatistic):
    """sum_j w_ij x_j for a tensor x of shape (k, d), or (batch or 1, heads or key heads or 1, k, d)."""

    x: Tensor
    group: int = 1

    def check(self, frame: Frame) -> None:
        shape = tuple(self.x.shape)
        four = (1,) * (4 - len(shape)) + shape
        fits = len(shape) in (2, 4) and four[0] in (1, frame.batch) and four[2] == frame.k
        if not fits or four[1] not in (1, frame.heads, frame.heads // self.group):
            raise ShapeError(
                f"x has shape {shape}; it must be (k, d) or (batch, heads, k, d) with batch {frame.batch}, "
                f"heads {frame.heads} (or {frame.heads // self.group} key heads, or 1) and k {frame.k}."
            )

    def columns(self, frame: Frame) -> Float[Tensor, "#batch #heads k extra"]:
        x = self.x.detach().view((1,) * (4 - self.x.ndim) + tuple(self.x.shape))
        shared = self.group > 1 and x.shape[1] == frame.heads // self.group and x.shape[1] != frame.heads
        return x.repeat_interleave(self.group, 1) if shared and x.shape[1] > 1 else x

    def folds(self, state: State, frame: Frame) -> list[Fold] | None:
        # For many columns, a matrix product per tile is faster than a fold.
        return super().folds(state, frame) if state["columns"].shape[-1] <= FEW else None

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q extra"]:
        return state["sums"]
