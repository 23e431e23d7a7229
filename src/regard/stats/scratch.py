"""Memory that tiles reuse: a fresh 2 MiB temporary per tile costs more in page faults than in arithmetic."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from regard.memo import Recent

__all__ = ["scratch"]

# A pass meets a few tile shapes: whole ones, and those at the right and lower edge.
KEPT = 16

_local = threading.local()


def scratch(use: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of zeros the first time, and afterwards the same tensor as its last user left it.

    Each use, shape, dtype and thread has a tensor of its own, so a use that always writes the same cells
    may count on the others being 0. On a GPU the tensor is always new: its allocator keeps memory anyway,
    and another stream may still be reading the old one.

    >>> like = torch.ones(1)
    >>> scratch("example", (2, 3), like)[:, 0] = 5
    >>> scratch("example", (2, 3), like)
    tensor([[5., 0., 0.],
            [5., 0., 0.]])
    """
    if like.device.type != "cpu":
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    kept: Recent[Tensor] = _local.__dict__.setdefault("kept", Recent(KEPT))
    name = (use, shape, like.dtype)
    found = kept.get(name)
    if found is None:
        # A tensor made in inference mode could never be written to outside of it.
        with torch.inference_mode(False):
            found = kept[name] = torch.zeros(shape, dtype=like.dtype)
    return found
