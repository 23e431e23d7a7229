"""The mean attention distance of each row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.folds import DistanceFold, Fold
from regard.stats.products import tall_product
from regard.stats.tile import Frame, MapTile

__all__ = ["MeanDistance"]


@dataclass(frozen=True)
class MeanDistance(Statistic):
    """The mean distance of each query's attention: Σ_j α_ij (i - j), positions of query and key.

    Shape (batch, heads, q). Keys after the query have negative distances. With a sink logit the sum is over
    the real keys only, so the sink's weight counts as distance 0.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[MeanDistance()]).mean_distance
    tensor([[[0.0000, 0.5000, 1.0000]]])
    """

    def init(self, frame: Frame) -> State:
        return {"sums": frame.zeros(frame.batch, frame.heads, frame.q)}

    def update(self, state: State, tile: MapTile) -> None:
        # Σ α (i - j) = (i - c) Σ α - Σ α (j - c), with c the tile's first key. Both terms are about as small
        # as the result; with positions i and j themselves, float32 would lose all digits.
        steps = torch.arange(len(tile.cols), dtype=tile.weights.dtype, device=tile.weights.device)
        sums = tall_product(tile.weights, torch.stack([torch.ones_like(steps), steps], -1))
        away = tile.q_pos - tile.cols.start
        tile.of_rows(state["sums"]).add_(sums[..., 0] * away - sums[..., 1])

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [DistanceFold(state["sums"])]

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q"]:
        return state["sums"]
