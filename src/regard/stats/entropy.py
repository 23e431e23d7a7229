"""The entropy of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.folds import EntropyFold, Fold
from regard.stats.tile import Frame, MapTile

__all__ = ["Entropy"]


@dataclass(frozen=True)
class Entropy(Statistic):
    """The entropy of each query's attention in nats: H_i = -Σ_j α_ij log α_ij, with 0 log 0 = 0.

    Shape (batch, heads, q). It is 0 for a single key and log n for n equal weights; a row with nothing to
    attend to has 0. With a sink logit the sum is over the real keys only, whose weights then sum to less than
    1.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[Entropy()]).entropy
    tensor([[[0.0000, 0.6931, 1.0986]]])
    """

    needs_log_weights: ClassVar[bool] = True
    spoils_log_weights: ClassVar[bool] = True

    def init(self, frame: Frame) -> State:
        return {"sums": frame.zeros(frame.batch, frame.heads, frame.q)}

    def update(self, state: State, tile: MapTile) -> None:
        tile.of_rows(state["sums"]).sub_(tile.weighted_logs)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [EntropyFold(state["sums"])]

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q"]:
        # Clamp to 0: a weight of 1 + 1e-7 would give a negative entropy.
        return state["sums"].clamp(min=0)
