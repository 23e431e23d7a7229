"""Overviews: the map pooled in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.checks import one_of, whole
from regard.stats.folds import BlockFold, Fold
from regard.stats.tile import Frame, MapTile

__all__ = ["Pooled", "PooledMaps"]


class PooledMaps(NamedTuple):
    """The mean and the largest weight of each block of the map."""

    mean: Float[Tensor, "batch heads q_blocks k_blocks"]
    max: Float[Tensor, "batch heads q_blocks k_blocks"]


@dataclass(frozen=True)
class Pooled(Statistic):
    """The map in blocks of size × size cells: the mean weight of each block, the largest, or both.

    Shape (batch, heads, ⌈q / size⌉, ⌈k / size⌉), a `PooledMaps` of two for "both". Blocks begin at row 0 and
    column 0; the last ones may be smaller, and their mean is over their own cells. Masked cells count as 0.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> seen = regard.observe(x, x, x, mask=regard.Causal(), stats=[Pooled(2, how="both")])
    >>> seen.pooled.mean, seen.pooled.max
    (tensor([[[[0.5000, 0.0000],
              [0.3333, 0.3333]]]]), tensor([[[[1.0000, 0.0000],
              [0.3333, 0.3333]]]]))
    """

    size: int
    how: str = "mean"
    makes_block_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole(self, "size", self.size, 1)
        one_of(self, "how", self.how, ("mean", "max", "both"))

    def init(self, frame: Frame) -> State:
        shape = (frame.batch, frame.heads, -(-frame.q // self.size), -(-frame.k // self.size))
        kept = {"mean": ("sum",), "max": ("max",), "both": ("sum", "max")}[self.how]
        return {name: frame.sums(*shape) for name in kept}

    def update(self, state: State, tile: MapTile) -> None:
        columns = tuple(_pieces(tile.cols, self.size))
        for rows in _pieces(tile.rows, self.size):
            cells = tile.weights[..., rows.cells, :].unflatten(-2, (rows.number, -1))
            aligned = rows.cells == slice(0, rows.number * self.size) and rows.cells.stop == len(tile.rows)
            for name, whole_map in state.items():
                # Reduce over rows first, along contiguous keys; few numbers are left for the columns.
                if name == "max":
                    narrow = cells.amax(-2)  # (batch, heads, blocks, k)
                else:
                    narrow = tile.block_sums(self.size) if aligned else cells.sum(-2)
                for cols in columns:
                    part = narrow[..., cols.cells].unflatten(-1, (cols.number, -1))
                    blocks = tile.of_heads(whole_map)[..., rows.blocks, cols.blocks]
                    if name == "sum":
                        blocks += part.sum(-1)
                    else:
                        torch.maximum(blocks, part.amax(-1), out=blocks)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [BlockFold(self.size, state.get("sum"), state.get("max"))]

    def merge(self, state: State, other: State) -> State:
        join = {"sum": torch.add, "max": torch.maximum}
        return {name: join[name](state[name], other[name]) for name in state}

    def finish(
        self, state: State, frame: Frame
    ) -> Float[Tensor, "batch heads q_blocks k_blocks"] | PooledMaps:
        if "max" in state:
            # Clamp to 1: a score may be rounded differently than in the forward pass.
            state["max"].clamp_(max=1.0)
        if self.how == "max":
            return state["max"]
        cells = self.size * self.size
        if frame.q % self.size or frame.k % self.size:
            cells = self._sizes(frame.q, frame)[:, None] * self._sizes(frame.k, frame)
        # In place, because allocating a map of this size takes as long as the division.
        mean = state["sum"].div_(cells)
        return mean if self.how == "mean" else PooledMaps(mean, state["max"])

    def _sizes(self, length: int, frame: Frame) -> Float[Tensor, " blocks"]:
        """The number of cells of each block along one side."""
        starts = torch.arange(0, length, self.size, device=frame.device)
        return (length - starts).clamp(max=self.size).to(frame.dtype)


class _Piece(NamedTuple):
    """Adjacent cells of a tile along one side, counted from its start: whole blocks, or part of one block."""

    cells: slice
    blocks: slice
    number: int


def _pieces(span: range, size: int) -> Iterator[_Piece]:
    """Cut a side of a tile at block borders; one piece if the tile is aligned with the blocks."""
    start = span.start
    while start < span.stop:
        block = start // size
        whole_blocks = (span.stop - start) // size if start % size == 0 else 0
        stop = start + whole_blocks * size if whole_blocks else min(span.stop, (block + 1) * size)
        count = max(1, whole_blocks)
        yield _Piece(slice(start - span.start, stop - span.start), slice(block, block + count), count)
        start = stop
