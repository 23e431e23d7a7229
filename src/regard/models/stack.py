"""`Stack`: the watched layers of one stack of a model, and their maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.errors import RecordingError
from regard.maps import AttentionMap
from regard.models.layer import Layer

__all__ = ["Maps", "Stack"]


class Stack(Mapping[int, Layer]):
    """The watched layers of one stack, by number: `stack[3].entropy`, `stack.maps[3]`."""

    def __init__(self, role: str, layers: dict[int, Layer]) -> None:
        self.role, self._layers = role, layers

    def __getitem__(self, index: int) -> Layer:
        if index not in self._layers:
            known = ", ".join(map(str, self._layers)) or "none"
            raise RecordingError(f"layer {index} of the {self.role} was not recorded; recorded are: {known}.")
        return self._layers[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"Stack({self.role}, layers={list(self._layers)})"

    @property
    def maps(self) -> Maps:
        """The attention map of each layer, by its number."""
        return Maps(self)

    def stat(self, name: str) -> Any:
        """One statistic of all layers, stacked in front: (layers, batch, heads, ...)."""
        values = [getattr(layer, name) for layer in self._layers.values()]
        if isinstance(values[0], Tensor):
            return torch.stack(values)
        return type(values[0])(*(torch.stack(parts) for parts in zip(*values, strict=True)))


class Maps(Mapping[int, AttentionMap]):
    """The maps of a stack, each computed or read on first access."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def __getitem__(self, index: int) -> AttentionMap:
        return self._stack[index].map

    def __iter__(self) -> Iterator[int]:
        return iter(self._stack)

    def __len__(self) -> int:
        return len(self._stack)
