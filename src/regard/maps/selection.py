"""The indices of `map[…]`: one per axis, independent of each other."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import MapError, MapIndexError

__all__ = ["Selection", "select"]

AXES = ("batch", "head", "query", "key")
USE = "use an int, a slice, None, a list, an array or a tensor of ints or flags"


@dataclass(frozen=True)
class Selection:
    """The selected entries of each axis, and how to arrange their tile in the shape of the index."""

    axes: tuple[Int[Tensor, "n"], ...]
    shape: tuple[int, ...]
    pairs: tuple[tuple[int, tuple[Int[Tensor, "n"], ...]], ...] = ()
    """For flags over several axes: the first of these axes, and the index of each true flag in the tile."""

    @property
    def cells(self) -> int:
        """The number of cells of the tile."""
        return math.prod(len(axis) for axis in self.axes)

    def arranged(self, tile: Tensor) -> Tensor:
        """The tile in the shape of the index: axes of ints are removed, and None adds an axis."""
        for first, places in reversed(self.pairs):
            tile = tile[(slice(None),) * first + places]
        return tile.reshape(self.shape)


@dataclass(frozen=True)
class _Part:
    """One entry of an index: the entries that it selects of each axis, and the axes that it leaves."""

    axes: tuple[Int[Tensor, "n"], ...]
    shape: tuple[int, ...]
    places: tuple[Int[Tensor, "n"], ...] | None = None


def select(index: Any, shape: tuple[int, ...]) -> Selection:
    """Normalise an index: ints, slices with steps, None, an ellipsis, lists, arrays and tensors.

    With at most one list, array or tensor, this is NumPy's indexing. Several select every combination of
    their entries, as `numpy.ix_` does, and axes keep their order.
    """
    given = list(index) if isinstance(index, tuple) else [index]
    given = [part if _is_simple(part) else _tensor(part) for part in given]
    if sum(part is Ellipsis for part in given) > 1:
        raise MapError("a map index may hold one ellipsis.")
    if not any(part is Ellipsis for part in given):
        given.append(Ellipsis)
    named = sum(map(_width, given))
    if named > len(shape):
        raise MapError(f"a map has 4 axes (batch, head, query, key) and the index names {named}.")
    place = next(i for i, part in enumerate(given) if part is Ellipsis)
    given[place : place + 1] = [slice(None)] * (len(shape) - named)
    return _joined(given, shape)


def _joined(given: Sequence[Any], shape: tuple[int, ...]) -> Selection:
    axes: list[Tensor] = []
    result: list[int] = []
    pairs: list[tuple[int, tuple[Tensor, ...]]] = []
    for entry in given:
        first = len(axes)
        part = _part(entry, shape[first:], AXES[first:])
        if part.places is not None:
            pairs.append((first, part.places))
        axes += part.axes
        result += part.shape
    return Selection(tuple(axes), tuple(result), tuple(pairs))


def _is_simple(part: Any) -> bool:
    return part is None or part is Ellipsis or isinstance(part, slice | range) or _integer(part) is not None


def _integer(part: Any) -> int | None:
    """The part as an int, if it is one; an array with one int is not."""
    if isinstance(part, bool) or getattr(part, "ndim", 0) or str(getattr(part, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(part)
    except TypeError:
        return None


def _tensor(part: Any) -> Any:
    """A list, an array or a tensor as a tensor; anything else as it is."""
    try:
        return part.cpu() if isinstance(part, Tensor) else _converted(part)
    except (TypeError, ValueError, RuntimeError):
        return part


def _converted(part: Any) -> Tensor:
    if hasattr(part, "__array__"):
        try:
            return torch.as_tensor(part)
        except (TypeError, ValueError):
            # PyTorch can't convert arrays with negative strides and some others.
            return torch.as_tensor(part.tolist())
    return torch.as_tensor(list(part))


def _width(part: Any) -> int:
    """The number of axes that an entry covers."""
    if part is None or part is Ellipsis:
        return 0
    return max(1, part.ndim) if isinstance(part, Tensor) and part.dtype == torch.bool else 1


def _part(entry: Any, sizes: tuple[int, ...], names: tuple[str, ...]) -> _Part:
    """Interpret one entry of an index; `sizes` and `names` are those of the remaining axes."""
    if entry is None:
        return _Part((), (1,))
    if isinstance(entry, Tensor) and entry.dtype == torch.bool and entry.ndim:
        return _flags(entry, sizes, names)
    size, name = sizes[0], names[0]
    if isinstance(entry, slice):
        entry = range(*entry.indices(size))
    if isinstance(entry, range):
        entry = torch.arange(len(entry)) * entry.step + entry.start
    if isinstance(entry, Tensor) and entry.ndim:
        return _Part((_checked(_whole(entry, name).flatten(), size, name),), tuple(entry.shape))
    number = _integer(entry)
    if number is None:
        raise MapError(f"the {name} index is a {type(entry).__name__}; {USE}.")
    return _Part((_checked(torch.tensor([number]), size, name),), ())


def _whole(entry: Tensor, name: str) -> Tensor:
    """The entry as int64; an empty list has no dtype of its own."""
    if entry.numel() and (entry.is_floating_point() or entry.is_complex()):
        kind = str(entry.dtype).removeprefix("torch.")
        raise MapError(f"the {name} index is {kind} of shape {tuple(entry.shape)}; {USE}.")
    return entry.to(torch.long)


def _flags(flags: Tensor, sizes: tuple[int, ...], names: tuple[str, ...]) -> _Part:
    """The cells whose flags are true, in order; for one axis a list of indices."""
    if flags.shape != sizes[: flags.ndim]:
        where = " and ".join(names[: flags.ndim])
        got = f"{flags.numel()} flags" if flags.ndim == 1 else f"flags of shape {tuple(flags.shape)}"
        wanted = f"one for each of {sizes[0]}" if flags.ndim == 1 else f"shape {sizes[: flags.ndim]}"
        raise MapError(f"the {where} index has {got}; wanted {wanted}.")
    found = flags.nonzero(as_tuple=True)
    if flags.ndim == 1:
        return _Part(found, (len(found[0]),))
    axes, places = zip(*(each.unique(return_inverse=True) for each in found), strict=True)
    return _Part(axes, (len(found[0]),), places)


def _checked(chosen: Tensor, size: int, name: str) -> Tensor:
    wrong = chosen[(chosen < -size) | (chosen >= size)]
    if len(wrong):
        have = f"{size} ({name} 0 to {size - 1})" if size else "none"
        raise MapIndexError(f"{name} {int(wrong[0])} is out of range: the map has {have}.")
    return torch.where(chosen < 0, chosen + size, chosen)
