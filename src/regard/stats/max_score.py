"""The largest score of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.folds import Fold, MaxScoreFold
from regard.stats.row_maxima import update_row_maxima
from regard.stats.tile import Frame, MapTile

__all__ = ["MaxScore", "RowMaximum"]


class RowMaximum(NamedTuple):
    """The largest score of each query and the key that has it; -inf and -1 where there is none."""

    value: Float[Tensor, "batch heads q"]
    key: Int64[Tensor, "batch heads q"]


@dataclass(frozen=True)
class MaxScore(Statistic):
    """The largest score of each query, max_j s_ij, and its key. Logit clipping watches these scores.

    The result is a `RowMaximum` of two (batch, heads, q) tensors. On ties it names the first key.

    >>> import torch, regard
    >>> q, k = torch.ones(1, 1, 1, 1), torch.tensor([[[[1.0], [3.0], [2.0]]]])
    >>> top = regard.observe(q, k, k, stats=[MaxScore()]).max_score
    >>> top.value.item(), top.key.item()
    (3.0, 1)
    """

    needs_scores: ClassVar[bool] = True

    def init(self, frame: Frame) -> State:
        shape = (frame.batch, frame.heads, frame.q)
        return {
            "value": torch.full(shape, -torch.inf, dtype=frame.dtype, device=frame.device),
            "key": torch.full(shape, -1, device=frame.device),
        }

    def update(self, state: State, tile: MapTile) -> None:
        value, key = tile.of_rows(state["value"]), tile.of_rows(state["key"])
        if tile.lse is None:
            update_row_maxima(value, key, tile.scores, tile.cols.start)
        else:
            # The largest log weight is the largest score, and needs no second tile of numbers.
            update_row_maxima(value, key, tile.log_weights, tile.cols.start, tile.lse)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [MaxScoreFold(state["value"], state["key"])]

    def merge(self, state: State, other: State) -> State:
        beaten = _beats(other["value"], other["key"], state["value"], state["key"])
        return {name: other[name].where(beaten, state[name]) for name in state}

    def finish(self, state: State, frame: Frame) -> RowMaximum:
        return RowMaximum(state["value"], state["key"])


def _beats(value: Tensor, key: Tensor | int, best: Tensor, best_key: Tensor) -> Tensor:
    """Whether a score replaces the best so far. NaN replaces every number, so that it shows."""
    return (value > best) | (value.isnan() & ~best.isnan()) | ((value == best) & (best_key > key))
