"""Layers that are being written by threads: some at once, and no more bytes than fit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from regard.models.buffers import Buffers
from regard.models.layer import Layer
from regard.models.storage import Draft

__all__ = ["Backlog"]

# How many layers are written at once: computing the checksum of one is slower than many disks.
WORKERS = 3
# How many bytes of layers wait to be written at most, besides the one that the model has just computed.
WAITING = 2 << 30


class Backlog:
    """The layers that are being written, in the order in which they came."""

    def __init__(self) -> None:
        self.buffers = Buffers()
        self._pool = ThreadPoolExecutor(WORKERS, "regard-writer")
        self._waiting: deque[tuple[Draft, Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def nbytes(self) -> int:
        return sum(draft.nbytes for draft, _ in self._waiting)

    def add(self, draft: Draft, write: Callable[[], None]) -> None:
        """Call `write` in a thread."""
        self._waiting.append((draft, self._pool.submit(write)))

    def delays(self, layer: Layer, *, copied: bool) -> bool:
        """Whether the first layer is to be taken out before another is added.

        It is if it has been written, if layers would exceed their number, or their memory where they are
        copies, or if the new layer replaces one of them.
        """
        return (
            self._waiting[0][1].done()
            or len(self) >= WORKERS
            or (copied and self.nbytes + layer.nbytes > _allowed(layer))
            or any(draft.layer.site == layer.site for draft, _ in self._waiting)
        )

    def first(self) -> tuple[Draft, Future[None]]:
        """Take out the layer that came first."""
        return self._waiting.popleft()

    def close(self) -> None:
        """Wait for all threads."""
        self._pool.shutdown()


def _allowed(layer: Layer) -> int:
    """How many bytes of layers may wait: on a GPU no more than a quarter of the memory that is left."""
    devices = {segment.lse.device for segment in layer.segments if segment.lse.is_cuda}
    left = [
        torch.cuda.mem_get_info(device)[0]
        + torch.cuda.memory_reserved(device)
        - torch.cuda.memory_allocated(device)
        for device in devices
    ]
    return min([WAITING, *(size // 4 for size in left)])
