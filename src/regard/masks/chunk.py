"""`Chunk`: attention within equal chunks of the sequence."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.masks.base import Mask
from regard.masks.checks import whole
from regard.masks.tiles import verdict

__all__ = ["Chunk"]


@dataclass(frozen=True, repr=False)
class Chunk(Mask):
    """Each query sees its own chunk of `size` positions, and `reach` chunks on either side of it.

    >>> print(Chunk(2).draw(5))
    # # . . .
    # # . . .
    . . # # .
    . . # # .
    . . . . #
    >>> print(Chunk(2, reach=1).draw(6))
    # # # # . .
    # # # # . .
    # # # # # #
    # # # # # #
    . . # # # #
    . . # # # #
    """

    size: int
    reach: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole(self, "size", self.size, 1))
        object.__setattr__(self, "reach", whole(self, "reach", self.reach, 0))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q // self.size - k // self.size).abs() <= self.reach

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        q_first, q_last = q_start // self.size, (q_stop - 1) // self.size
        k_first, k_last = k_start // self.size, (k_stop - 1) // self.size
        return verdict(
            full=(q_last - k_first <= self.reach) & (k_last - q_first <= self.reach),
            empty=(q_first - k_last > self.reach) | (k_first - q_last > self.reach),
        )

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor]:
        chunk = q // self.size
        return (chunk - self.reach) * self.size, (chunk + self.reach + 1) * self.size
