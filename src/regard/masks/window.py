"""`Window`: sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.masks.base import Mask
from regard.masks.checks import whole
from regard.masks.tiles import offsets, verdict

__all__ = ["Window"]


@dataclass(frozen=True, repr=False, init=False)
class Window(Mask):
    """Each query sees the keys near it: q - left < k < q + right; by default right = left.

    Both sides include the query's own key, so that `Causal() & Window(w)` is exactly w keys.

    >>> print(Window(3, 2).draw(5))
    # # . . .
    # # # . .
    # # # # .
    . # # # #
    . . # # #
    >>> from regard.masks import Causal
    >>> print((Causal() & Window(2)).draw(4))
    # . . .
    # # . .
    . # # .
    . . # #
    """

    left: int
    right: int

    def __init__(self, left: int, right: int | None = None) -> None:
        remedy = "A side counts the query's own key: Window(1) is the diagonal."
        left = whole(self, "left", left, 1, remedy)
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "right", left if right is None else whole(self, "right", right, 1, remedy))

    @property
    def relative(self) -> bool:
        return True

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q - self.left < k) & (k < q + self.right)

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        low, high = offsets(q_start, q_stop, k_start, k_stop)
        return verdict(
            full=(-self.left < low) & (high < self.right),
            empty=(high <= -self.left) | (low >= self.right),
        )

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor]:
        return q - self.left + 1, q + self.right

    def __repr__(self) -> str:
        right = "" if self.right == self.left else f", right={self.right}"
        return f"Window(left={self.left}{right})"
