"""How far back a row looks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.tile import Frame, MapTile

__all__ = ["MeanDistance"]

# Distances are measured from the start of each run of so many keys.
RUN = 64


@dataclass(frozen=True)
class MeanDistance(Statistic):
    """How far back each query looks on average: Σ_j α_ij (i - j), positions of query and key.

    Shape (batch, heads, q). Keys after the query are at negative distances. With a sink logit the sum is over
    the real keys only: what the sink takes counts as distance 0.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[MeanDistance()]).mean_distance
    tensor([[[0.0000, 0.5000, 1.0000]]])
    """

    def init(self, frame: Frame) -> State:
        return {"sums": frame.zeros(frame.batch, frame.heads, frame.q)}

    def update(self, state: State, tile: MapTile) -> None:
        width = tile.weights.shape[-1]
        whole = width - width % RUN
        sums = tile.of_rows(state["sums"])
        for start, stop in ((0, whole), (whole, width)):
            if start < stop:
                sums += _distances(tile, start, stop, min(RUN, stop - start))

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q"]:
        return state["sums"]


def _distances(tile: MapTile, start: int, stop: int, run: int) -> Float[Tensor, "batch heads q"]:
    """Σ α (i - j) over some columns of a tile.

    For keys c, c + 1, … it is (i - c) Σ α - Σ α (j - c). Position a million has no digits of float32 left for
    a distance of one; with c close to j, and i - c in whole numbers, both terms are as small as the answer.
    """
    runs = tile.weights[..., start:stop].unflatten(-1, (-1, run))
    steps = torch.arange(run, dtype=runs.dtype, device=runs.device)
    sums = runs @ torch.stack([torch.ones_like(steps), steps], -1)  # (batch, heads, q, runs, 2)
    mass, within = sums.unbind(-1)
    away = tile.q_pos[:, None] - tile.k_pos[start:stop:run]  # (q, runs)
    return (mass * away - within).sum(-1)
