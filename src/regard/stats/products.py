"""Products of a tile with a few columns."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

__all__ = ["tall_product"]

ROWS = 128


def tall_product(
    tile: Float[Tensor, "batch heads q k"], columns: Float[Tensor, "k few"]
) -> Float[Tensor, "batch heads q few"]:
    """tile @ columns, in pieces of rows, because a long thin product is split badly over threads.

    >>> import torch
    >>> tall_product(torch.ones(1, 1, 2, 3), torch.ones(3, 1)).flatten()
    tensor([3., 3.])
    """
    q = tile.shape[2]
    if q % ROWS:
        return tile @ columns
    pieces = tile.reshape(-1, ROWS, tile.shape[3])
    return pieces.bmm(columns.expand(len(pieces), -1, -1)).view(*tile.shape[:3], -1)
