"""Sum buffers that are zeroed lazily: the first to add to one can overwrite it instead."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["LazyZeros"]


class LazyZeros:
    """Allocates sum buffers, and knows which are still uninitialised.

    Clearing a buffer is a kernel of its own. For overviews of many short maps in small blocks it takes as
    long as writing the results.
    """

    def __init__(self) -> None:
        self.uninitialised: dict[int, Tensor] = {}

    def __call__(self, shape: tuple[int, ...], **options: Any) -> Tensor:
        """An uninitialised buffer: the first to add to it must clear or overwrite it."""
        made = torch.empty(shape, **options)
        self.uninitialised[id(made)] = made
        return made

    def take(self, x: Tensor) -> bool:
        """Return whether a buffer is still uninitialised; if so, the caller must overwrite all of it."""
        return self.uninitialised.pop(id(x), None) is not None

    def clear(self, *some: Tensor | None) -> None:
        """Set uninitialised buffers to 0; leave others and None alone."""
        for x in some:
            if x is not None and self.take(x):
                x.zero_()

    def add(self, x: Tensor, more: Tensor) -> None:
        """Add a tensor of the same shape, or one that expands to it."""
        if self.take(x):
            x.copy_(more)
        else:
            x.add_(more)

    def clear_all(self) -> None:
        """Set all buffers that are still uninitialised to 0."""
        self.clear(*list(self.uninitialised.values()))
