"""The distribution of weights or scores."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import State, Statistic
from regard.stats.checks import one_of
from regard.stats.folds import BinFold, Fold, PairFold
from regard.stats.scratch import scratch
from regard.stats.tile import Frame, MapTile

__all__ = ["BinCounts", "Histogram"]

# The default borders: for weights four per decade from 1e-8 to 1, for scores every two logits from -32 to 32.
WEIGHT_EDGES = tuple(10 ** (i / 4) for i in range(-32, 0))
SCORE_EDGES = tuple(float(edge) for edge in range(-32, 33, 2))


class BinCounts(NamedTuple):
    """The number of pairs in each bin; bin b holds edges[b] ≤ x < edges[b + 1]."""

    edges: Float[Tensor, " edges"]
    counts: Int64[Tensor, "batch heads bins"]


@dataclass(frozen=True)
class Histogram(Statistic):
    """The distribution of the weights, or the scores, of all pairs that may attend: counts per bin.

    A `BinCounts`: edges (bins + 1,), counts (batch, heads, bins). `edges` are the borders between bins, by
    default four per decade from 1e-8 for weights, and one every two logits for scores. The first and the last
    bin hold values below the first and from the last border on, so the counts add up to the number of pairs.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> seen = regard.observe(x, x, x, mask=regard.Causal(), stats=[Histogram(edges=(0.4, 0.6))])
    >>> seen.histogram.edges, seen.histogram.counts
    (tensor([0.0000, 0.4000, 0.6000, 1.0000]), tensor([[[3, 2, 1]]]))
    """

    of: str = "weight"
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        one_of(self, "of", self.of, ("weight", "score"))
        if self.edges is None:
            object.__setattr__(self, "edges", WEIGHT_EDGES if self.of == "weight" else SCORE_EDGES)
        low, high = self._outer
        if not all(a < b for a, b in pairwise([low, *self._borders, high])):
            raise StatisticError(
                f"Histogram got edges={self.edges}; borders between bins of a {self.of} must rise, "
                f"all above {low:g} and below {high:g}, which need not be given."
            )

    @property
    def needs_scores(self) -> bool:  # type: ignore[override]
        return self.of == "score"

    def init(self, frame: Frame) -> State:
        shape = (frame.batch, frame.heads, len(self._borders) + 1)
        return {"counts": frame.zeros(*shape, dtype=torch.int64)}

    def update(self, state: State, tile: MapTile) -> None:
        counts = tile.of_heads(state["counts"])
        values = tile.weights if self.of == "weight" else tile.scores
        pairs = len(tile.rows) * len(tile.cols) if tile.allowed is None else tile.allowed.sum((-2, -1))
        counts[..., 0] += pairs
        reached = scratch("histogram.reached", tuple(values.shape), values)
        for index, border in enumerate(self._borders):
            # Ones as floats, because sums of bools are slow; float32 counts rows of up to 2^24 keys exactly.
            # Masked pairs have weight 0 or score -inf, and reach no border.
            above = torch.ge(values, border, out=reached).sum(-1).long().sum(-1)
            counts[..., index] -= above
            counts[..., index + 1] += above

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        counts = state["counts"]
        return [PairFold(counts[..., :1], "map"), BinFold(counts, self._borders, self.of)]

    def finish(self, state: State, frame: Frame) -> BinCounts:
        low, high = self._outer
        edges = torch.tensor([low, *self._borders, high], dtype=frame.dtype, device=frame.device)
        return BinCounts(edges, state["counts"])

    @property
    def _outer(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.of == "weight" else (-torch.inf, torch.inf)

    @property
    def _borders(self) -> tuple[float, ...]:
        return self.edges or ()
