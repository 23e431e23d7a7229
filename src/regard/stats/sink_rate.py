"""The share of heads with a sink."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import State, Statistic
from regard.stats.checks import whole
from regard.stats.counts import counted_part, counts_shape
from regard.stats.folds import ColumnFold, Fold, PairFold
from regard.stats.tile import Frame, MapTile

__all__ = ["SinkRate"]


@dataclass(frozen=True)
class SinkRate(Statistic):
    """The share of heads in which one key is a sink: its mean weight exceeds a threshold (Gu et al., 2024).

    The mean of α_i,key is over the queries that may see the key; without such queries a head has no sink.
    Shape (batch,), from 0 to 1.

    >>> import torch, regard
    >>> x = torch.zeros(1, 2, 4, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[SinkRate()]).sink_rate
    tensor([1.])
    """

    key: int = 0
    threshold: float = 0.3

    def __post_init__(self) -> None:
        whole(self, "key", self.key, 0)

    def check(self, frame: Frame) -> None:
        if 0 < frame.k <= self.key:
            raise StatisticError(f"SinkRate got key={self.key}, and there are {frame.k} keys; count from 0.")

    def init(self, frame: Frame) -> State:
        return {
            "sums": frame.zeros(frame.batch, frame.heads),
            "counts": frame.zeros(*counts_shape(frame), dtype=torch.int64),
        }

    def update(self, state: State, tile: MapTile) -> None:
        if self.key not in tile.cols:
            return
        column = self.key - tile.cols.start
        tile.of_heads(state["sums"]).add_(tile.weights[..., column].sum(-1))
        if (part := counted_part(state["counts"], tile)) is not None:
            counts, allowed = part
            counts += len(tile.rows) if allowed is None else allowed[..., column].sum(-1)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        sums, counts = (state[name][..., None] for name in ("sums", "counts"))
        return [ColumnFold(sums, first=self.key), PairFold(counts, first=self.key)]

    def finish(self, state: State, frame: Frame) -> Float[Tensor, " batch"]:
        means = state["sums"] / state["counts"].clamp(min=1)
        return (means > self.threshold).to(frame.dtype).mean(-1)
