"""The total weight on each key, per window of queries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.base import Block, State, Statistic
from regard.stats.checks import whole
from regard.stats.column_mass import ColumnMass
from regard.stats.tile import Frame, MapTile

__all__ = ["WindowedMass"]


@dataclass(frozen=True)
class WindowedMass(Statistic):
    """`ColumnMass` of every window of `queries` queries, which shows how the mass of a key changes over a
    text.

    Shape (batch, heads, windows, k); the last window may be shorter. With `cumulative`, window w holds the
    mass of all queries up to its end, as an eviction policy that adds up weights has it at that point.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[WindowedMass(2)]).windowed_mass
    tensor([[[[1.5000, 0.5000, 0.0000, 0.0000],
              [0.5833, 0.5833, 0.5833, 0.2500]]]])
    """

    queries: int
    cumulative: bool = False

    def __post_init__(self) -> None:
        whole(self, "queries", self.queries, 1)

    def init(self, frame: Frame) -> State:
        return {"sums": frame.sums(frame.batch, frame.heads, len(self._windows(frame)), frame.k)}

    def update(self, state: State, tile: MapTile) -> None:
        for number, rows in enumerate(self._windows(tile.frame)):
            part = tile.between(rows)
            if part is not None:
                sums = part.of_heads(state["sums"])[:, :, number, tile.cols.start : tile.cols.stop]
                sums.add_(part.column_sums)

    def blocks(self, frame: Frame) -> list[Block]:
        return [Block(rows, ColumnMass()) for rows in self._windows(frame)]

    def join_blocks(self, states: list[State], frame: Frame) -> State:
        return {"sums": torch.stack([state["sums"] for state in states], 2)}

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads windows k"]:
        return state["sums"].cumsum(2) if self.cumulative else state["sums"]

    def _windows(self, frame: Frame) -> list[range]:
        return [range(start, min(start + self.queries, frame.q)) for start in range(0, frame.q, self.queries)]
