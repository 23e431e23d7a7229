"""The base class of masks that hold a tensor."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks.base import Mask
from regard.memo import Holder

__all__ = ["HeldMask"]


class HeldMask(Mask, Holder):
    """A mask that holds a tensor and is compared by the tensor's contents.

    The tensor is a copy, so that later writes to the original don't invalidate cached schedules.
    """

    @property
    @abstractmethod
    def content(self) -> Tensor:
        """The tensor that defines the mask."""

    @abstractmethod
    def holding(self, content: Tensor) -> Mask:
        """A mask of the same class with another tensor."""

    def select(self, row: int) -> Mask:
        if self.batch is None:
            return self
        if not 0 <= row < self.batch:
            raise MaskError(f"{self!r} has {self.batch} batch rows and row {row} was asked for.")
        return self.holding(self.content[row : row + 1])

    def to(self, device: torch.device | str) -> Mask:
        moved = self.content.to(device)
        return self if moved is self.content else self.holding(moved)

    def bind(self, batch: int, heads: int) -> Mask:
        if self.was_changed:
            raise MaskError(
                f"the tensor of {self!r} was changed in place after the mask was made; a mask must stay what "
                f"it was, because schedules made for it are kept. Make a new {type(self).__name__} instead."
            )
        return self

    def __hash__(self) -> int:
        return hash((type(self), *self.contents.values()))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, HeldMask) or type(self) is not type(other):
            return NotImplemented
        mine, theirs = self.content, other.content
        return mine.shape == theirs.shape and torch.equal(mine, theirs.to(mine.device))
