"""Sums along the diagonals of a tile, for everything that depends on distance only."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from regard.errors import ShapeError

__all__ = ["diagonal_sums"]


def diagonal_sums(tile: Float[Tensor, "*lead q k"]) -> Float[Tensor, "*lead diagonals"]:
    """Sum a tile along each of its q + k - 1 diagonals, the same way on every run.

    Entry d holds the cells with k_index - q_index = d - (q - 1): entry 0 is the lower left corner,
    entry q - 1 the main diagonal, the last entry the upper right corner.

    >>> import torch
    >>> diagonal_sums(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    tensor([4., 6., 8., 3.])
    """
    if tile.ndim < 2 or 0 in tile.shape[-2:]:
        raise ShapeError(f"tile has shape {tuple(tile.shape)}; wanted (..., q, k), both at least 1.")
    q, k = tile.shape[-2:]
    # Flip the rows, pad every row by q, and view the memory with rows one shorter: each row is shifted right
    # by one against the row above, so a diagonal becomes a column. This needs no scatter and no atomics.
    padded = functional.pad(tile.flip(-2), (0, q)).flatten(-2)  # (..., q * (k + q))
    skewed = padded[..., : q * (k + q - 1)].unflatten(-1, (q, k + q - 1))
    return skewed.sum(-2)
