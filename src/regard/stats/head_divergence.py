"""The divergence between heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.folds import DivergenceFold, Fold
from regard.stats.tile import Frame, MapTile

__all__ = ["HeadDivergence"]

# The number of cells at a time for the comparison of head pairs.
CELLS = 1 << 20


@dataclass(frozen=True)
class HeadDivergence(Statistic):
    """The divergence of each pair of heads: the mean over rows of JS(α^h, α^h'), in nats (Clark et al.,
    2019).

    JS(p, p') = H((p + p') / 2) - (H(p) + H(p')) / 2, from 0 (the same) to log 2 (no key in common). Shape
    (batch, heads, heads). The mean is over the rows in which both heads attend to anything, 0 if there are
    none. Rows are compared as they are: with a sink logit they sum to less than 1, and are not scaled up.

    >>> import torch, regard
    >>> x = torch.zeros(1, 2, 3, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[HeadDivergence()]).head_divergence
    tensor([[[0., 0.],
             [0., 0.]]])
    """

    needs_all_heads: ClassVar[bool] = True

    def init(self, frame: Frame) -> State:
        return {
            "sums": frame.zeros(frame.batch, frame.heads, frame.heads),
            "mass": frame.zeros(frame.batch, frame.heads, frame.q),
        }

    def update(self, state: State, tile: MapTile) -> None:
        weights = tile.weights
        tile.of_rows(state["mass"]).add_(weights.sum(-1))
        sums = state["sums"][tile.batch.start : tile.batch.stop]
        entropy = _entropy(weights)  # (batch, heads, q)
        at_once = max(1, CELLS // max(1, weights[:, 0].numel()))
        heads = weights.shape[1]
        for head in range(heads - 1):
            for start in range(head + 1, heads, at_once):
                others = slice(start, min(start + at_once, heads))
                mixed = _entropy((weights[:, head, None] + weights[:, others]) / 2)
                # Subtract per row, where both terms are of the size of an entropy; their sums over rows are
                # larger.
                rows = mixed - (entropy[:, head, None] + entropy[:, others]) / 2
                sums[:, head, others] += rows.sum(-1)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [DivergenceFold(state["sums"], state["mass"])]

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads heads"]:
        mass = state["mass"]
        live = (mass > 0).to(mass.dtype)
        rows = live @ live.mT
        # Opposite a dead row, every cell has added α log 2 / 2; subtract that, computed from the row's mass.
        stray = mass @ (1 - live).mT * (math.log(2) / 2)
        upper = (state["sums"] - stray - stray.mT).triu(1).clamp(min=0)
        # If no row is live in both heads, only rounding errors are left.
        return ((upper + upper.mT) / rows.clamp(min=1)).masked_fill(rows == 0, 0.0)


def _entropy(weights: Float[Tensor, "batch heads q k"]) -> Float[Tensor, "batch heads q"]:
    """-Σ w log w of each row; weights are clamped from below so that 0 log 0 is 0."""
    logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log_()
    return -torch.einsum("bhqk,bhqk->bhq", weights, logs)
