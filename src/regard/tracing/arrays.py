"""Converts the user's numbers to tensors, and limits the size of a trace."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from regard.errors import DtypeError, MapError, ShapeError

__all__ = ["MAX_MAPS", "MAX_PAIRS", "as_tensor", "check_size", "one_dtype"]

MAX_PAIRS = 4096
"""The most pairs in one map of a trace, which is meant to be read cell by cell."""

MAX_MAPS = 64
"""The most maps in one trace: batch rows × heads."""


def as_tensor(name: str, given: Any) -> Tensor:
    """Numbers as a float tensor: a float tensor is returned unchanged, anything else is converted to float64.

    >>> as_tensor("q", [[1, 0]])
    tensor([[1., 0.]], dtype=torch.float64)
    """
    tensor = _converted(name, given)
    if not tensor.numel():
        raise ShapeError(
            f"{name} has shape {tuple(tensor.shape)} and holds no number; trace needs at least one."
        )
    return tensor


def one_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Convert all tensors to the widest dtype among them, at least float32."""
    wide = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return tuple(tensor.to(wide) for tensor in tensors)


def check_size(q: int, k: int, batch: int, heads: int) -> None:
    """Raise MapError, with alternatives, if there are too many cells to read."""
    if q * k > MAX_PAIRS:
        raise MapError(
            f"trace got {q:,} queries × {k:,} keys = {q * k:,} pairs; it keeps every cell of every step "
            f"and stops at {MAX_PAIRS:,}. Trace fewer tokens, or read tiles of the large map: "
            "regard.observe(q, k, v).map."
        )
    if batch * heads > MAX_MAPS:
        raise MapError(
            f"trace got {batch} batch rows × {heads} heads = {batch * heads} maps; it stops at {MAX_MAPS}. "
            "Pick some of them, such as q[:1, :8], or read the large map: regard.observe(q, k, v).map."
        )


def _converted(name: str, given: Any) -> Tensor:
    if isinstance(given, Tensor):
        if given.is_complex() or given.dtype == torch.bool:
            raise DtypeError(
                f"{name} is {given.dtype}; trace needs real numbers. Convert it, {name}.double()."
            )
        return given.detach() if given.is_floating_point() else given.detach().double()
    try:
        if hasattr(given, "__array__"):
            import numpy

            # Copy, because torch doesn't accept read-only arrays and negative strides.
            return torch.from_numpy(numpy.array(given, dtype=numpy.float64))
        return torch.tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"{name} is a {type(given).__name__} that cannot be read as numbers ({error}). "
            "Give a torch.Tensor, a numpy array, or lists of equal length."
        ) from error
