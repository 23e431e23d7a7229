"""Where random choices come from: Hypothesis, which can shrink them, or a seed, which is faster.

What makes random inputs takes a `Choice` and need not know which.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

__all__ = ["Choice", "Drawn", "Seeded"]

Item = TypeVar("Item")


class Choice(ABC):
    """Choices out of ranges and lists. Simple ones come first: that is where Hypothesis shrinks to."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """A number from low to high, both included."""

    def flag(self) -> bool:
        return bool(self.integer(0, 1))

    def pick(self, options: Sequence[Item]) -> Item:
        return options[self.integer(0, len(options) - 1)]

    def integers(self, low: int, high: int, most: int) -> list[int]:
        """At most so many numbers."""
        return [self.integer(low, high) for _ in range(self.integer(0, most))]

    def seed(self) -> int:
        """A seed for a generator of tensors."""
        return self.integer(0, 2**16)


class Seeded(Choice):
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return low + int(self.random.random() * (high - low + 1))


class Drawn(Choice):
    """Choices that Hypothesis draws."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))
