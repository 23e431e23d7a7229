"""`RandomBlocks`: blocks drawn at random, reproducibly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.errors import MaskError
from regard.masks.base import Mask
from regard.masks.checks import whole
from regard.masks.tiles import verdict

__all__ = ["RandomBlocks"]


@dataclass(frozen=True, repr=False)
class RandomBlocks(Mask):
    """Each block of queries sees `per_row` different blocks of keys, drawn at random.

    `length` is the largest number of keys, which fixes the number of blocks to draw from; shorter calls use a
    corner of the same table, as needed for a growing KV cache. The table depends only on the arguments, and
    is the same on every machine and in every run. Positions before 0 see nothing.

    >>> print(RandomBlocks(block=2, per_row=1, length=8).draw(8))
    # # . . . . . .
    # # . . . . . .
    . . . . . . # #
    . . . . . . # #
    . . # # . . . .
    . . # # . . . .
    # # . . . . . .
    # # . . . . . .
    """

    block: int
    per_row: int
    length: int
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("block", 1), ("per_row", 1), ("length", 1), ("seed", 0)):
            object.__setattr__(self, name, whole(self, name, getattr(self, name), least))
        if self.per_row > self._blocks:
            raise MaskError(
                f"RandomBlocks got per_row={self.per_row}, and length {self.length} holds {self._blocks} "
                f"blocks of {self.block}; draw fewer, or make the block smaller."
            )

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        table = self._table.to(q.device)
        row, column = q // self.block, k // self.block
        drawn = table[row.clamp(0, self._blocks - 1)]  # (*q, per_row)
        inside = (0 <= row) & (row < self._blocks)
        return (drawn == column[..., None]).any(-1) & inside

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        top, bottom = q_start // self.block, (q_stop - 1) // self.block + 1
        left, right = k_start // self.block, (k_stop - 1) // self.block + 1
        hits = self._count(*torch.broadcast_tensors(top, bottom, left, right))
        return verdict(full=hits == (bottom - top) * (right - left), empty=hits == 0)

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        if k > self.length:
            raise MaskError(
                f"RandomBlocks was drawn for {self.length} keys and k has {k}; make it with length={k}."
            )

    @property
    def _blocks(self) -> int:
        return -(-self.length // self.block)

    @cached_property
    def _table(self) -> Int64[Tensor, "blocks per_row"]:
        """Which key blocks each query block sees.

        Floyd's algorithm for drawing without replacement, for all rows at once: if a row already contains the
        drawn block, the last candidate of the step is taken instead.
        """
        generator = torch.Generator().manual_seed(self.seed)
        table = torch.full((self._blocks, self.per_row), -1)
        for step, last in enumerate(range(self._blocks - self.per_row, self._blocks)):
            drawn = torch.randint(last + 1, (self._blocks,), generator=generator)
            taken = (table == drawn[:, None]).any(1)
            table[:, step] = torch.where(taken, last, drawn)
        return table

    @cached_property
    def _levels(self) -> list[Int64[Tensor, "drawn"]]:
        """The drawn blocks as sorted numbers row * blocks + column, rows merged 1, 2, 4, ... at a time."""
        rows = torch.arange(self._blocks)[:, None]
        depth = self._blocks.bit_length()
        return [
            ((rows >> level) * self._blocks + self._table).flatten().sort().values for level in range(depth)
        ]

    def _count(
        self,
        top: Int64[Tensor, "*tiles"],
        bottom: Int64[Tensor, "*tiles"],
        left: Int64[Tensor, "*tiles"],
        right: Int64[Tensor, "*tiles"],
    ) -> Int64[Tensor, "*tiles"]:
        """The number of drawn blocks in each rectangle of blocks.

        Any range of rows consists of merged rows of different levels, at most two of each level, and the
        columns of a merged row are sorted, so a rectangle of any size takes O(log² blocks).
        """
        top, bottom, left, right = (x.clamp(0, self._blocks).contiguous() for x in (top, bottom, left, right))
        total = torch.zeros_like(top)
        for drawn in self._levels:
            if not (top < bottom).any():
                break
            for odd, row in (((top & 1).bool(), top), ((bottom & 1).bool(), bottom - 1)):
                low = torch.searchsorted(drawn, row * self._blocks + left)
                high = torch.searchsorted(drawn, row * self._blocks + right)
                total += torch.where(odd & (top < bottom), high - low, 0)
            top, bottom = (top + 1) >> 1, bottom >> 1
        return total
