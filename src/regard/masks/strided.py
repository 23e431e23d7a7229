"""`Strided`: every n-th key."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.masks.base import Mask
from regard.masks.checks import whole
from regard.masks.tiles import offsets, verdict

__all__ = ["Strided"]


@dataclass(frozen=True, repr=False)
class Strided(Mask):
    """Each query sees every stride-th key, counted from itself in both directions.

    >>> from regard.masks import Causal, Window
    >>> print((Causal() & (Window(2) | Strided(3))).draw(7))
    # . . . . . .
    # # . . . . .
    . # # . . . .
    # . # # . . .
    . # . # # . .
    . . # . # # .
    # . . # . # #
    """

    stride: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "stride", whole(self, "stride", self.stride, 1))

    @property
    def relative(self) -> bool:
        return True

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q - k) % self.stride == 0

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        low, high = offsets(q_start, q_stop, k_start, k_stop)
        # A multiple of the stride lies between low and high exactly where the quotient steps up.
        empty = (low - 1) // self.stride == high // self.stride
        alone = low == high
        return verdict(full=~empty & (alone | (self.stride == 1)), empty=empty)

    def pairs(self, q: int, k: int | None = None) -> int:
        k = q if k is None else k
        residue = torch.arange(k - q, k) % self.stride
        return int(((k - 1 - residue) // self.stride + 1).sum())
