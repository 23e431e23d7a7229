"""`LiveQueries`: hides padding queries of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.masks.base import Mask
from regard.masks.held import HeldMask
from regard.masks.tiles import agreement, same_rank, verdict

__all__ = ["LiveQueries"]

# Larger than every key.
END = 2**62


@dataclass(frozen=True, repr=False, eq=False)
class LiveQueries(HeldMask):
    """A query sees keys only where `valid`, a bool tensor (batch, q), is True: the counterpart of Padding.

    The first flag belongs to the query at position `start`; queries outside see nothing.

    >>> print(LiveQueries(torch.tensor([[True, False, True]]), start=0).draw(3))
    # # #
    . . .
    # # #
    """

    valid: Tensor
    start: int

    @property
    def content(self) -> Tensor:
        return self.valid

    def holding(self, content: Tensor) -> Mask:
        return LiveQueries(content, self.start)

    @property
    def batch(self) -> int | None:
        return self.valid.shape[0] if self.valid.shape[0] != 1 else None

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = same_rank(q, k)
        shape = torch.broadcast_shapes(q.shape, k.shape)
        return self._flags(q)[:, None].expand(-1, 1, *shape)

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(q_start.shape, q_stop.shape, k_start.shape, k_stop.shape)
        first, last = ((x - self.start).clamp(0, self.valid.shape[1]) for x in (q_start, q_stop))
        count = self._before[:, last] - self._before[:, first]
        return agreement(verdict(full=count == q_stop - q_start, empty=count == 0)).expand(shape)

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor]:
        high = torch.where(self._flags(q)[:, None], END, 0)
        return torch.zeros_like(high), high

    def _flags(self, q: Tensor) -> Tensor:
        at, count = q - self.start, self.valid.shape[1]
        return self.valid.to(q.device)[:, at.clamp(0, count - 1)] & (0 <= at) & (at < count)

    @cached_property
    def _before(self) -> Int64[Tensor, "rows edges"]:
        """The number of valid queries before each position."""
        return torch.nn.functional.pad(self.valid.cumsum(-1), (1, 0)).cpu()

    def __eq__(self, other: object) -> bool:
        same = super().__eq__(other)
        return same if same is NotImplemented else same and self.start == getattr(other, "start", None)

    # A class that defines only __eq__ has no hash.
    __hash__ = HeldMask.__hash__

    def __repr__(self) -> str:
        shape = " × ".join(str(size) for size in self.valid.shape)
        return f"LiveQueries(valid=<{shape}, {int(self.valid.sum())} true>)"
