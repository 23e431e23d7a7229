"""Measures the peak memory of a computation, as PyTorch sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["peak_bytes"]


class _Living(TorchDispatchMode):
    """Counts the bytes of all live storages that operations created."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and (key := x.untyped_storage()._cdata) not in given:
                storage = x.untyped_storage()
                self.sizes[key] = (StorageWeakRef(storage), storage.nbytes())
        self.sizes = {key: held for key, held in self.sizes.items() if not held[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.sizes.values()))
        return out


def peak_bytes(task: Callable[[], object]) -> int:
    """The peak number of bytes of live tensors that a task created.

    Allocations inside kernels are not counted.

    >>> import torch
    >>> peak_bytes(lambda: torch.ones(100) + torch.ones(100))
    1200
    """
    with _Living() as living:
        task()
    return living.peak
