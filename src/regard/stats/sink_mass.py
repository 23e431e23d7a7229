"""The weight on the first keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.base import ColumnStatistic, State
from regard.stats.checks import whole
from regard.stats.folds import Fold, MixFold
from regard.stats.tile import Frame, MapTile

__all__ = ["SinkMass"]


@dataclass(frozen=True)
class SinkMass(ColumnStatistic):
    """The weight of each query on the first keys: Σ_{j < first} α_ij.

    Shape (batch, heads, q). The default of four is that of StreamingLLM (Xiao et al., 2023).

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[SinkMass(1)]).sink_mass
    tensor([[[1.0000, 0.5000, 0.3333, 0.2500]]])
    """

    first: int = 4

    def __post_init__(self) -> None:
        whole(self, "first", self.first, 1)

    def columns(self, frame: Frame) -> Float[Tensor, "1 1 k 1"]:
        return (torch.arange(frame.k, device=frame.device) < self.first).to(frame.dtype).view(1, 1, -1, 1)

    def update(self, state: State, tile: MapTile) -> None:
        inside = min(self.first, tile.cols.stop) - tile.cols.start
        if inside > 0:
            tile.of_rows(state["sums"])[..., 0] += tile.weights[..., :inside].sum(-1)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [MixFold(state["sums"], state["columns"], min(self.first, frame.k))]

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q"]:
        return state["sums"].squeeze(-1)
