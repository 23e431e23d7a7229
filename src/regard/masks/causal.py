"""The causal mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.masks.base import Mask
from regard.masks.checks import whole
from regard.masks.tiles import offsets, verdict

__all__ = ["Causal"]


@dataclass(frozen=True, repr=False)
class Causal(Mask):
    """Each query sees its own position and all earlier ones: k <= q + shift.

    The mask is aligned at the **end**: the last query sits on the last key for any lengths, as needed for a
    KV cache. PyTorch's `is_causal` is aligned at the top left, which is `Causal(shift=q_len - k_len)`.

    >>> print(Causal().draw(3, 5))
    # # # . .
    # # # # .
    # # # # #
    >>> print(Causal(shift=3 - 5).draw(3, 5))
    # . . . .
    # # . . .
    # # # . .
    """

    shift: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", whole(self, "shift", self.shift))

    @property
    def relative(self) -> bool:
        return True

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return k <= q + self.shift

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        low, high = offsets(q_start, q_stop, k_start, k_stop)
        return verdict(full=high <= self.shift, empty=low > self.shift)

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(q), q + self.shift + 1
