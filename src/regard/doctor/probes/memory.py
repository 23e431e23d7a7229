"""Checks how the largest tensor grows with the length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.doctor.case import Case
from regard.doctor.watch import light

__all__ = ["memory"]

LENGTHS = (128, 256)


class _Largest(TorchDispatchMode):
    """Records the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.device.type != "meta":
                # Views and expanded tensors have no memory of their own.
                self.elements = max(
                    self.elements, min(x.numel(), x.untyped_storage().nbytes() // x.element_size())
                )
        return out


light(_Largest)


def memory(case: Case) -> None:
    """Double the length and check whether the largest tensor doubles or quadruples."""
    sizes = []
    for n in LENGTHS:
        state = case.subject.sample(n)
        try:
            with torch.no_grad(), _Largest() as watched:
                case.subject.run(state)
        except Exception:
            return
        sizes.append(watched.elements)
    if sizes[1] < 3.5 * sizes[0] or sizes[1] < LENGTHS[1] ** 2:
        return
    small, large = (f"{size:,} elements at {n}" for size, n in zip(sizes, LENGTHS, strict=True))
    evidence = f"the largest tensor has {small} tokens and {large}"
    if case.options.linear_memory:
        case.find("quadratic-memory", evidence)
    else:
        case.note(f"memory grows with the square of the length: {evidence}")
