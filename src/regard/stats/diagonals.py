"""Maps the diagonals of a tile to the diagonals of the whole map.

A state holds one number per diagonal of the map, in the order of `diagonal_sums`: entry 0 is the lower left
corner, so entry g holds distance k - 1 - g. Distance is the query's position minus the key's.
"""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.memo import remembered
from regard.stats.tile import Frame, MapTile

__all__ = ["diagonal_cells", "diagonals", "of_diagonals", "split_by_sign"]


def diagonals(frame: Frame) -> int:
    """The number of diagonals of a map; at least the number of keys, so that every distance has an entry.

    >>> diagonals(Frame(batch=1, heads=1, q=3, k=5))
    7
    """
    return max(frame.q, 1) + frame.k - 1


def of_diagonals(x: Tensor, tile: MapTile, cut: int = 0) -> Tensor:
    """The part of a (…, diagonals) tensor that belongs to a tile without its first `cut` columns; a view."""
    start = tile.cols.start + cut + tile.frame.q - tile.rows.stop
    return x[..., start : start + len(tile.rows) + len(tile.cols) - cut - 1]


@remembered(64)
def diagonal_cells(q: int, k: int, device: torch.device) -> Int64[Tensor, " diagonals"]:
    """The number of cells on each diagonal of a q × k tile.

    >>> diagonal_cells(2, 4, torch.device("cpu"))
    tensor([1, 2, 2, 2, 1])
    """
    rising = torch.arange(1, q + k, device=device)
    return torch.minimum(rising, rising.flip(0)).clamp_(max=min(q, k))


def split_by_sign(x: Tensor, frame: Frame) -> tuple[Tensor, Tensor]:
    """A (…, diagonals) tensor as distances 0, 1, … k - 1, and distances -1, -2, … 1 - q.

    >>> split_by_sign(torch.tensor([30, 20, 10, -10]), Frame(batch=1, heads=1, q=2, k=3))
    (tensor([10, 20, 30]), tensor([-10]))
    """
    return x[..., : frame.k].flip(-1), x[..., frame.k :]
