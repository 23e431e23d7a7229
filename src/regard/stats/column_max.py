"""The largest weight of each key."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import State, Statistic
from regard.stats.folds import ColumnMaxFold, Fold
from regard.stats.tile import Frame, MapTile

__all__ = ["ColumnMax"]


@dataclass(frozen=True)
class ColumnMax(Statistic):
    """The largest weight that each key gets from any query, max_i α_ij; near 0 for a key that no query uses.

    Shape (batch, heads, k). With `per_key_head` the maximum is also over the query heads that share a key
    head, shape (batch, kv_heads, k); KVzip keeps cached keys by this score (Kim et al., 2025).

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[ColumnMax()]).column_max
    tensor([[[1.0000, 0.5000, 0.3333]]])
    """

    per_key_head: bool = False

    def check(self, frame: Frame) -> None:
        if self.per_key_head and frame.values is None:
            raise StatisticError("ColumnMax(per_key_head=True) needs to know how many key heads there are.")

    def init(self, frame: Frame) -> State:
        return {"tops": frame.zeros(frame.batch, frame.heads, frame.k)}

    def update(self, state: State, tile: MapTile) -> None:
        tops = tile.of_cols(state["tops"])
        torch.maximum(tops, tile.weights.amax(-2), out=tops)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [ColumnMaxFold(state["tops"])]

    def merge(self, state: State, other: State) -> State:
        return {"tops": torch.maximum(state["tops"], other["tops"])}

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch some_heads k"]:
        # Clamp to 1: a score may be rounded differently than in the forward pass.
        tops = state["tops"].clamp_(max=1.0)
        if not self.per_key_head or frame.values is None:
            return tops
        return tops.unflatten(1, (frame.values.shape[1], -1)).amax(2)
