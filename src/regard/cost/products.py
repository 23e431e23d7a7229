"""Counts the matrix products of one pass through a model, by module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Products"]

WEIGHTED = ("mm", "addmm")
BATCHED = ("bmm", "baddbmm")


class Products(TorchDispatchMode):
    """Counts the FLOPs of matrix products, and the numbers that they read and write, per label.

    `flops[label]` counts all products; `weighted[label]` only products of two matrices, as in linear layers;
    `moved[label]` the numbers that these read and write, without the weight matrix. A module without a label
    counts for the module that called it.

    >>> layer = nn.Linear(4, 3)
    >>> with Products({layer: "mine"}) as found:
    ...     _ = layer(torch.ones(5, 4))
    >>> found.flops["mine"], found.moved["mine"]
    (120, 35)
    """

    def __init__(self, labels: Mapping[nn.Module, Hashable]) -> None:
        super().__init__()
        self.labels = labels
        self.stack: list[Hashable] = [None]
        self.flops: dict[Hashable, int] = defaultdict(int)
        self.weighted: dict[Hashable, int] = defaultdict(int)
        self.moved: dict[Hashable, int] = defaultdict(int)
        self.visited: set[nn.Module] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in WEIGHTED or name in BATCHED:
            a, b = args[:2] if name in ("mm", "bmm") else args[1:3]
            self._count(name, a, b, out)
        return out

    def _count(self, name: str, a: Tensor, b: Tensor, out: Tensor) -> None:
        label, flops = self.stack[-1], 2 * a.numel() * b.shape[-1]
        self.flops[label] += flops
        if name in WEIGHTED:
            self.weighted[label] += flops
            self.moved[label] += a.numel() + out.numel()

    def __enter__(self) -> Products:
        self._hooks = [
            torch_module.register_module_forward_pre_hook(self._enter),
            torch_module.register_module_forward_hook(self._leave),
        ]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*error)

    def _enter(self, module: nn.Module, args: Any) -> None:
        self.visited.add(module)
        self.stack.append(self.labels.get(module, self.stack[-1]))

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        self.stack.pop()


@contextmanager
def on_meta() -> Iterator[None]:
    """Within the block, create tensors on the meta device, without gradients."""
    with torch.no_grad(), torch.device("meta"):
        yield
