"""The largest score of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.folds import Fold, PeakFold
from regard.stats.peaks import note_peaks
from regard.stats.tile import Frame, MapTile

__all__ = ["MaxScore", "RowMaximum"]


class RowMaximum(NamedTuple):
    """The largest score of each query and the key that has it; -inf and -1 where there is none."""

    value: Float[Tensor, "batch heads q"]
    key: Int64[Tensor, "batch heads q"]


@dataclass(frozen=True)
class MaxScore(Statistic):
    """The largest score of each query, max_j s_ij, and its key: what logit clipping keeps an eye on.

    A `RowMaximum` of two (batch, heads, q) tensors. Of equal scores the first key is named.

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
            note_peaks(value, key, tile.scores, tile.cols.start)
        else:
            # The largest log weight is the largest score, and needs no second tile of numbers.
            note_peaks(value, key, tile.log_weights, tile.cols.start, tile.lse)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [PeakFold(state["value"], state["key"])]

    def merge(self, state: State, other: State) -> State:
        beaten = _beats(other["value"], other["key"], state["value"], state["key"])
        return {name: other[name].where(beaten, state[name]) for name in state}

    def finish(self, state: State, frame: Frame) -> RowMaximum:
        return RowMaximum(state["value"], state["key"])


def _beats(value: Tensor, key: Tensor | int, best: Tensor, best_key: Tensor) -> Tensor:
    """Whether a score replaces the best so far. A NaN among the scores must not go unseen: it beats all."""
    return (value > best) | (value.isnan() & ~best.isnan()) | ((value == best) & (best_key > key))
