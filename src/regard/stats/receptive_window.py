"""The window that holds most of a head's attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import State, Statistic
from regard.stats.diagonals import diagonals, of_diagonals, split_by_sign
from regard.stats.folds import DiagonalFold, Fold
from regard.stats.tile import Frame, MapTile

__all__ = ["ReceptiveWindow"]


@dataclass(frozen=True)
class ReceptiveWindow(Statistic):
    """The window that a head needs: the smallest w for which keys nearer than w hold `share` of its weight.

    Nearer than w means |i - j| < w, positions of query and key, as for `Window(w)`; the weight is summed over
    all queries. Shape (batch, heads), int64; 0 for an empty map.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[ReceptiveWindow(0.75)]).receptive_window
    tensor([[2]])
    """

    share: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise StatisticError(f"ReceptiveWindow got share={self.share!r}; wanted more than 0, at most 1.")

    def init(self, frame: Frame) -> State:
        return {"diagonals": frame.sums(frame.batch, frame.heads, diagonals(frame))}

    def update(self, state: State, tile: MapTile) -> None:
        of_diagonals(tile.of_heads(state["diagonals"]), tile).add_(tile.diagonal_sums)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [DiagonalFold(state["diagonals"])]

    def finish(self, state: State, frame: Frame) -> Int64[Tensor, "batch heads"]:
        before, after = split_by_sign(state["diagonals"].double(), frame)
        near = before.new_zeros(frame.batch, frame.heads, max(frame.q, frame.k, 1))
        near[..., : frame.k] = before
        near[..., 1 : after.shape[-1] + 1] += after
        held = near.cumsum(-1)
        total = held[..., -1:]
        window = (held < self.share * total).sum(-1) + 1
        return torch.where(total[..., 0] > 0, window, 0)
