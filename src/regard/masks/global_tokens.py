"""`Global`: positions that see all others and are seen by all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks.base import Mask
from regard.masks.checks import whole
from regard.masks.tiles import verdict

__all__ = ["Global"]

# Larger than every position, and small enough that sums don't overflow int64.
FAR = 2**62


@dataclass(frozen=True, repr=False, init=False)
class Global(Mask):
    """Pairs with at least one global side; `tokens` are the positions, or the number of first positions.

    >>> print(Global(1).draw(4))
    # # # #
    # . . .
    # . . .
    # . . .
    >>> from regard.masks import Window
    >>> print((Window(1) | Global((2,))).draw(4))
    # . # .
    . # # .
    # # # #
    . . # #
    """

    tokens: int | tuple[int, ...]

    def __init__(self, tokens: int | Sequence[int]) -> None:
        if isinstance(tokens, Tensor):
            raise MaskError("Global got a tensor; give the positions themselves: Global(tensor.tolist()).")
        if isinstance(tokens, Sequence):
            held = tuple(sorted({whole(self, "a token", token, 0) for token in tokens}))
        else:
            held = whole(self, "tokens", tokens, 0)
        object.__setattr__(self, "tokens", held)

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return self._holds(q) | self._holds(k)

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        of_q, of_k = self._count(q_start, q_stop), self._count(k_start, k_stop)
        return verdict(
            full=(of_q == q_stop - q_start) | (of_k == k_stop - k_start),
            empty=(of_q == 0) & (of_k == 0),
        )

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor] | None:
        if not isinstance(self.tokens, int):
            return None
        return torch.zeros_like(q), torch.where(self._holds(q), FAR, self.tokens)

    def _holds(self, position: Tensor) -> Tensor:
        if isinstance(self.tokens, int):
            return (0 <= position) & (position < self.tokens)
        return torch.isin(position, torch.tensor(self.tokens, dtype=torch.int64, device=position.device))

    def _count(self, start: Tensor, stop: Tensor) -> Tensor:
        """The number of global positions in each half-open range."""
        if isinstance(self.tokens, int):
            return (stop.clamp(0, self.tokens) - start.clamp(0, self.tokens)).clamp(min=0)
        tokens = torch.tensor(self.tokens, dtype=torch.int64)
        return torch.searchsorted(tokens, stop.contiguous()) - torch.searchsorted(tokens, start.contiguous())
