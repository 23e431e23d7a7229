"""Pieces of host memory that writing uses again and again, so that its memory is bounded."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["PAGE", "PIECE", "Buffers"]

# How much is copied, checksummed and written at once.
PIECE = 16 << 20
# Writing past the page cache needs memory, sizes and places in the file that are multiples of this.
PAGE = 4096


class Buffers:
    """Buffers of PIECE bytes, aligned to pages. Those for tensors of a GPU are pinned: copies are then fast.

    `take` and `give` may be called from any thread.
    """

    def __init__(self) -> None:
        self._free: dict[bool, list[Tensor]] = {False: [], True: []}

    def take(self, pinned: bool) -> Tensor:
        """A free buffer, or a new one."""
        try:
            return self._free[pinned].pop()
        except IndexError:
            if pinned:
                # Begins at a page. PyTorch pins a power of two, so a byte more would take twice the memory.
                return torch.empty(PIECE, dtype=torch.uint8, pin_memory=True)
            whole = torch.empty(PIECE + PAGE, dtype=torch.uint8)
            start = -whole.data_ptr() % PAGE
            return whole[start : start + PIECE]

    def give(self, buffer: Tensor) -> None:
        """Return a buffer that nothing reads or fills any more."""
        self._free[buffer.is_pinned()].append(buffer)
