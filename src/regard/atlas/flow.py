"""One layer's step of rollout: a weighted sum of the rows of a map, over all heads, without the matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats import Frame, MapTile, State, Statistic

__all__ = ["Flow"]


@dataclass(frozen=True, eq=False, repr=False)
class Flow(Statistic):
    """Σ_h Σ_i r_i α^h_ij c^h_j for several r at once, of shape (rows, k).

    `rows` holds the r, (rows, q); `columns` the c, (heads, k). For a map of one batch row. Only the result is
    stored: heads are summed tile by tile.
    """

    rows: Float[Tensor, "rows q"]
    columns: Float[Tensor, "heads k"]

    def init(self, frame: Frame) -> State:
        return {"sums": frame.zeros(len(self.rows), frame.k)}

    def update(self, state: State, tile: MapTile) -> None:
        rows = self.rows[:, tile.rows.start : tile.rows.stop]
        columns = self.columns[tile.heads.start : tile.heads.stop, tile.cols.start : tile.cols.stop]
        seen = rows.to(tile.weights) @ tile.weights[0]  # (heads, rows, k)
        state["sums"][:, tile.cols.start : tile.cols.stop] += torch.einsum("hrk,hk->rk", seen, columns)

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "rows k"]:
        return state["sums"]
