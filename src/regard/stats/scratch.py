"""Temporary tensors that tiles reuse: page faults of a new 2 MiB temporary take longer than its
arithmetic."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from regard.memo import Recent

__all__ = ["scratch"]

# The number of tile shapes to keep: whole tiles, and those at the right and lower edge.
KEPT = 16

_local = threading.local()


def scratch(use: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor that is zero on first use, and afterwards has the contents that the last use left.

    There is one tensor per use, shape, dtype and thread, so a use that always writes the same cells can rely
    on the others being 0. On a GPU the tensor is always new: the allocator caches memory anyway, and another
    stream may still be reading the old one.

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
        # A tensor made in inference mode can't be written to outside of it.
        with torch.inference_mode(False):
            found = kept[name] = torch.zeros(shape, dtype=like.dtype)
    return found
