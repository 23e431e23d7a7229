"""Splits vectors into heads, and joins them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError

__all__ = ["check_input", "joined", "split"]


def split(x: Float[Tensor, "batch length width"], heads: int) -> Float[Tensor, "batch heads length dim"]:
    """Split vectors into heads of adjacent dimensions."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Float[Tensor, "batch heads length dim"]) -> Float[Tensor, "batch length width"]:
    """The inverse of `split`."""
    return x.transpose(1, 2).flatten(-2)


def check_input(name: str, x: Tensor, dim: int, like: Tensor | None = None) -> None:
    """Raise ShapeError unless x is (batch, length, dim) or (length, dim), and of `like`'s rank and batch."""
    if x.ndim not in (2, 3) or x.shape[-1] != dim:
        raise ShapeError(
            f"{name} has shape {tuple(x.shape)}; it must be (batch, length, {dim}) or (length, {dim})."
        )
    if like is not None and (x.ndim != like.ndim or x.shape[:-2] != like.shape[:-2]):
        raise ShapeError(
            f"{name} has shape {tuple(x.shape)} and query {tuple(like.shape)}; both must have the same batch."
        )
