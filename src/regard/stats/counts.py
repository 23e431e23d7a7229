"""Counts of pairs that may attend, once per mask instead of once per head.

Counts have a batch and a head dimension only if the mask differs between batch rows or heads. Otherwise only
tiles of the first batch row and the first head are counted, for all.
"""

from __future__ import annotations

from jaxtyping import Bool
from torch import Tensor

from regard.stats.tile import Frame, MapTile

__all__ = ["counted_part", "counts_shape"]


def counts_shape(frame: Frame) -> tuple[int, int]:
    """The batch and heads of a tensor of counts, each 1 if all share the mask.

    >>> from regard.masks import Causal
    >>> counts_shape(Frame(batch=2, heads=8, q=4, k=4, mask=Causal()))
    (1, 1)
    """
    if frame.mask is None:
        return 1, 1
    mask = frame.mask.bind(frame.batch, frame.heads)
    return mask.batch or 1, mask.heads or 1


def counted_part(
    counts: Tensor, tile: MapTile
) -> tuple[Tensor, Bool[Tensor, "batch heads q k"] | None] | None:
    """The part of `counts` that a tile must be added to, and its allowed pairs (None: all of them).

    Returns None for tiles that are not counted.
    """
    allowed = tile.allowed
    for dim, span, size in ((0, tile.batch, tile.frame.batch), (1, tile.heads, tile.frame.heads)):
        if counts.shape[dim] == size:
            counts = counts.narrow(dim, span.start, len(span))
        elif span.start == 0:
            allowed = None if allowed is None else allowed.narrow(dim, 0, 1)
        else:
            return None
    return counts, allowed
