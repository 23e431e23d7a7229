"""Counts allowed pairs without the matrix."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.extension import implements
from regard.masks.base import Coverage, Mask

__all__ = ["count_pairs"]

LEAF = 64  # tiles this small are evaluated cell by cell
SPLIT = 8  # a tile that is neither empty nor full is split into 8 x 8
ROOTS = 2**16  # at most so many tiles to begin with
CELLS = 2**22  # at most so many cells evaluated at once
ROWS = 2**20  # at most so many spans at once


def count_pairs(mask: Mask, q: int, k: int) -> int:
    """The number of the q x k pairs that a mask allows, over all of its batch rows and heads.

    This takes O(q) for masks of one interval per query, and O(q + k) for masks that depend on distance only.
    Otherwise it uses the coverage of tiles, and evaluates only tiles that are neither empty nor full, so the
    time depends on the mask's edges.

    >>> from regard.masks import Causal, Prefix
    >>> count_pairs(Causal() | Prefix(2), 4, 4)
    11
    """
    if q == 0 or k == 0:
        return 0
    counted = _count_spans(mask, q, k)
    if counted is not None:
        return counted
    if mask.batch is not None:
        # Count ragged batches row by row: a tile is seldom full or empty in all rows, but mostly in a single
        # one.
        return sum(count_pairs(mask.select(row), q, k) for row in range(mask.batch))
    if mask.relative:
        return _count_diagonals(mask, q, k)
    size = LEAF
    while -(-q // size) * -(-k // size) > ROOTS:
        size *= SPLIT
    rows, columns = torch.arange(k - q, k, size), torch.arange(0, k, size)
    q_start, k_start = torch.meshgrid(rows, columns, indexing="ij")
    return _count_tiles(mask, q_start.flatten(), k_start.flatten(), size, k)


@implements(Mask.pairs)
def _pairs(self: Mask, q: int, k: int | None = None) -> int:
    k = q if k is None else k
    self.check(q, k, *(1 if own is None else own for own in (self.batch, self.heads)))
    if 0 in (self.batch, self.heads):
        return 0
    return count_pairs(self, q, k)


def _count_spans(mask: Mask, q: int, k: int) -> int | None:
    total = 0
    for start in range(k - q, k, ROWS):
        positions = torch.arange(start, min(start + ROWS, k))
        spans = mask.spans(positions)
        if spans is None:
            return None
        low, high = (x.clamp(0, k) for x in spans)
        length = (high - low).clamp(min=0)
        total += int(length.expand(mask.batch or 1, mask.heads or 1, len(positions)).sum())
    return total


def _count_diagonals(mask: Mask, q: int, k: int) -> int:
    """Count by diagonals: either all cells of a diagonal are allowed or none, so evaluate its first cell."""
    total = 0
    for start in range(1 - q, k, ROWS):
        distance = torch.arange(start, min(start + ROWS, k))
        key = (k - q - distance).clamp(min=0)
        cells = (k - distance).clamp(max=k) - key
        total += int((mask.allows(key + distance, key) * cells).expand(1, mask.heads or 1, -1).sum())
    return total


def _count_tiles(
    mask: Mask, q_start: Int64[Tensor, "tiles"], k_start: Int64[Tensor, "tiles"], size: int, end: int
) -> int:
    """Count tiles of one size, depth first and a handful at a time, so that memory stays small.

    `end` closes both axes: positions of queries and of keys stop at the number of keys.
    """
    total = 0
    for q0, k0 in zip(q_start.split(ROOTS), k_start.split(ROOTS), strict=True):
        q1, k1 = (q0 + size).clamp(max=end), (k0 + size).clamp(max=end)
        coverage = mask.cover(q0, q1, k0, k1)
        full, partial = coverage == Coverage.FULL, coverage == Coverage.PARTIAL
        total += int(((q1 - q0) * (k1 - k0))[full].sum()) * (mask.heads or 1)
        if size == LEAF:
            total += _count_cells(mask, q0[partial], k0[partial], end)
        else:
            total += _count_tiles(
                mask, *_split(q0[partial], k0[partial], size // SPLIT, end), size // SPLIT, end
            )
    return total


def _split(
    q_start: Int64[Tensor, "tiles"], k_start: Int64[Tensor, "tiles"], size: int, end: int
) -> tuple[Int64[Tensor, "parts"], Int64[Tensor, "parts"]]:
    steps = torch.arange(SPLIT) * size
    q_parts, k_parts = torch.broadcast_tensors(
        q_start[:, None, None] + steps[:, None], k_start[:, None, None] + steps
    )  # (tiles, 8, 8)
    inside = (q_parts < end) & (k_parts < end)
    return q_parts[inside], k_parts[inside]


def _count_cells(
    mask: Mask, q_start: Int64[Tensor, "tiles"], k_start: Int64[Tensor, "tiles"], end: int
) -> int:
    heads = mask.heads or 1
    steps = torch.arange(LEAF)
    at_once = max(1, CELLS // (LEAF * LEAF * heads))
    total = 0
    for q0, k0 in zip(q_start.split(at_once), k_start.split(at_once), strict=True):
        q = q0[:, None, None] + steps[:, None]  # (tiles, 64, 1)
        k = k0[:, None, None] + steps  # (tiles, 1, 64)
        # Clamp positions to the end, because a mask may index tables with them.
        allowed = mask.allows(q.clamp(max=end - 1), k.clamp(max=end - 1))
        allowed = allowed & (q < end) & (k < end)
        total += int(torch.count_nonzero(allowed.expand(1, heads, *allowed.shape[-3:])))
    return total
