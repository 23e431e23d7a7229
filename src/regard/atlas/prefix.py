"""Shares the lower layers between runs that are equal up to some layer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.atlas.anatomy import Anatomy

__all__ = ["Prefix"]


class Prefix:
    """The output of every block in one run, so that another run may start at a later block.

    Blocks are the modules of the list that contains the attending layers. A model without such a list has no
    blocks, and its runs always start at the beginning. If blocks pass on more than their output, a late start
    gives another answer: try one, and call `forget` if it does. Stores one hidden state per block.
    """

    def __init__(self, model: Any, anatomy: Anatomy) -> None:
        self.blocks, self.place = _blocks(model, anatomy)
        self.outputs: list[Any] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Store the outputs of the blocks of a run within this context."""
        self.outputs = []
        hooks = [
            block.register_forward_hook(lambda module, args, output: self.outputs.append(output))
            for block in self.blocks
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @contextmanager
    def before(self, layer: int, batch: int) -> Iterator[None]:
        """Within this context, runs of this many texts skip the blocks before the one that holds a layer."""
        start = self.place.get(layer, 0) if self.outputs else 0
        skipped = self.blocks[:start]
        try:
            for block in skipped:
                # All skipped blocks may return the last one's output: only that is read.
                answer = _repeated(self.outputs[start - 1], batch)
                block.forward = lambda *args, answer=answer, **kwargs: answer
            yield
        finally:
            for block in skipped:
                block.__dict__.pop("forward", None)

    def forget(self) -> None:
        """Start every run at the beginning from now on."""
        self.outputs = []


def _blocks(model: Any, anatomy: Anatomy) -> tuple[list[Any], dict[int, int]]:
    """The blocks in order, and the block that contains each layer."""
    found: dict[int, tuple[str, int]] = {}
    for (name, _), place in anatomy.sites.items():
        match = re.match(r"(.*?)\.(\d+)(?:\.|$)", name)
        if match is None:
            return [], {}
        found[place.layer] = match[1], int(match[2])
    lists = {parent for parent, _ in found.values()}
    if len(lists) != 1 or len(set(found.values())) != len(anatomy.sites):
        return [], {}
    blocks = model.get_submodule(lists.pop())
    if not isinstance(blocks, torch.nn.ModuleList):
        return [], {}
    return list(blocks), {layer: number for layer, (_, number) in found.items()}


def _repeated(output: Any, batch: int) -> Any:
    """A block's output for a batch of the same text."""
    if isinstance(output, Tensor):
        return output.repeat(batch, *[1] * (output.ndim - 1))
    if isinstance(output, tuple):
        return tuple(_repeated(part, batch) for part in output)
    return output
