"""What `map[…]` means: one index per axis, each on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import MapError

__all__ = ["Selection", "select"]

AXES = ("batch", "head", "query", "key")


@dataclass(frozen=True)
class Selection:
    """The chosen entries of each axis, and which axes an integer index takes away."""

    axes: tuple[Int[Tensor, "n"], ...]
    dropped: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    @property
    def cells(self) -> int:
        batch, heads, rows, cols = self.shape
        return batch * heads * rows * cols

    def squeeze(self, tile: Tensor) -> Tensor:
        """Take away the axes that were indexed by an integer."""
        for axis in reversed(self.dropped):
            tile = tile.squeeze(axis)
        return tile


def select(index: Any, shape: tuple[int, ...]) -> Selection:
    """Normalise an index: ints, slices with steps, negative indices, lists, tensors, an ellipsis."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if sum(part is Ellipsis for part in parts) > 1:
        raise MapError("a map index may hold one ellipsis.")
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    if len(parts) - 1 > len(shape):
        raise MapError(f"a map has 4 axes (batch, head, query, key) and the index names {len(parts) - 1}.")
    place = next(i for i, part in enumerate(parts) if part is Ellipsis)
    parts[place : place + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    axes = tuple(_axis(part, size, name) for part, size, name in zip(parts, shape, AXES, strict=True))
    dropped = tuple(axis for axis, part in enumerate(parts) if _is_int(part))
    return Selection(axes, dropped)


def _is_int(part: Any) -> bool:
    if isinstance(part, Tensor):
        return part.ndim == 0 and part.dtype != torch.bool
    return not isinstance(part, bool) and hasattr(part, "__index__")


def _axis(part: Any, size: int, name: str) -> Int[Tensor, "n"]:
    if isinstance(part, slice):
        part = range(*part.indices(size))
    if _is_int(part):
        return _checked(torch.tensor([int(part)]), size, name)
    if isinstance(part, range):
        chosen = torch.arange(len(part)) * part.step + part.start
        return _checked(chosen, size, name)
    try:
        chosen = part if isinstance(part, Tensor) else torch.as_tensor(list(part))
    except (TypeError, ValueError, RuntimeError):
        raise MapError(
            f"the {name} index is a {type(part).__name__}; use an int, a slice, a list or a tensor."
        ) from None
    if chosen.dtype == torch.bool:
        if chosen.shape != (size,):
            raise MapError(f"the {name} index has {chosen.numel()} flags; wanted one for each of {size}.")
        chosen = chosen.nonzero().flatten()
    if chosen.ndim != 1 or (chosen.is_floating_point() and len(chosen)):
        kind = str(chosen.dtype).removeprefix("torch.")
        raise MapError(f"the {name} index is {kind} with {chosen.ndim} axes; wanted a list of ints.")
    return _checked(chosen.to(torch.long).cpu(), size, name)


def _checked(chosen: Tensor, size: int, name: str) -> Tensor:
    wrong = chosen[(chosen < -size) | (chosen >= size)]
    if len(wrong):
        raise MapError(
            f"{name} {int(wrong[0])} is out of range: the map has {size} ({name} 0 to {size - 1})."
        )
    return torch.where(chosen < 0, chosen + size, chosen)
