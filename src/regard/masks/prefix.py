"""`Prefix`: every query sees the first keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.masks.base import Mask
from regard.masks.checks import whole
from regard.masks.tiles import verdict

__all__ = ["Prefix"]


@dataclass(frozen=True, repr=False)
class Prefix(Mask):
    """Every query sees the first n keys. A prefix language model is `Causal() | Prefix(n)`.

    >>> from regard.masks import Causal
    >>> print((Causal() | Prefix(2)).draw(4))
    # # . .
    # # . .
    # # # .
    # # # #
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole(self, "n", self.n, 0))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (k < self.n).expand(torch.broadcast_shapes(q.shape, k.shape))

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(q_start.shape, q_stop.shape, k_start.shape, k_stop.shape)
        return verdict(full=k_stop <= self.n, empty=k_start >= self.n).expand(shape)

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(q), torch.full_like(q, self.n)
