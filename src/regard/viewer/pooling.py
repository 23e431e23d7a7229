"""Overviews: the map in blocks of 2^level × 2^level cells, with the mean and the largest weight of each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.viewer.heads import Head

__all__ = ["TILE", "Blocks", "levels_of", "pool", "span_of"]

# Cells (or blocks) along one side of a tile.
TILE = 256
# Blocks up to this level are pooled from strips of cells; coarser ones are joined from these.
FINE = 4


class Blocks(NamedTuple):
    """Sums, largest weights and cell counts of some blocks."""

    sums: Float[Tensor, "rows cols"]
    max: Float[Tensor, "rows cols"]
    cells: Float[Tensor, "rows cols"]

    @property
    def mean(self) -> Float[Tensor, "rows cols"]:
        """Mean weights; cells that are masked count as 0."""
        return self.sums / self.cells

    def halved(self) -> Blocks:
        """Join blocks two by two along both sides; an odd last one stays single."""
        return Blocks(_joined(self.sums, "sum"), _joined(self.max, "max"), _joined(self.cells, "sum"))


def levels_of(queries: int, keys: int) -> int:
    """The number of levels of a map; the coarsest level is the first that fits into one tile.

    >>> levels_of(256, 200), levels_of(257, 200), levels_of(131072, 131072)
    (1, 2, 10)
    """
    longest = max(queries, keys, 1)
    return 1 + max(0, (-(-longest // TILE) - 1).bit_length())


def span_of(index: int, level: int, length: int) -> range:
    """The cells along one side that a tile covers; empty outside the map.

    >>> span_of(1, 1, 700)
    range(512, 700)
    """
    size = TILE << level
    return range(min(index * size, length), min((index + 1) * size, length))


def pool(head: Head, rows: range, cols: range, level: int) -> Blocks:
    """Blocks of a rectangle that begins at a block border, from exact cells.

    >>> import torch, regard
    >>> q = torch.zeros(1, 1, 3, 8)
    >>> head = Head.of(regard.AttentionMap.of(q, q, mask=regard.Causal()), 0)
    >>> pool(head, range(3), range(3), 1).mean
    tensor([[0.5000, 0.0000],
            [0.3333, 0.3333]])
    """
    if level == 0:
        weights = head.read(rows, cols).float()
        return Blocks(weights, weights, torch.ones_like(weights))
    fine = min(level, FINE)
    size = 1 << fine
    shape = -(-len(rows) // size), -(-len(cols) // size)
    sums, most = torch.zeros(shape), torch.zeros(shape)
    for r, c, weights in head.pieces(rows, cols):
        at = _blocks(r, rows.start, size), _blocks(c, cols.start, size)
        sums[at], most[at] = _pooled(weights.float(), size)
    cells = _lengths(rows, size)[:, None] * _lengths(cols, size)
    found = Blocks(sums, most, cells)
    for _ in range(level - fine):
        found = found.halved()
    return found


def _pooled(weights: Float[Tensor, "q k"], size: int) -> tuple[Tensor, Tensor]:
    rows, cols = weights.shape
    if rows % size or cols % size:
        weights = pad(weights, (0, -cols % size, 0, -rows % size))
    # Reduce over rows first: this runs along contiguous keys, and leaves few numbers for the columns.
    high = weights.unflatten(0, (-1, size))
    return (
        high.sum(1).unflatten(1, (-1, size)).sum(-1),
        high.amax(1).unflatten(1, (-1, size)).amax(-1),
    )


def _blocks(span: range, start: int, size: int) -> slice:
    return slice((span.start - start) // size, -(-(span.stop - start) // size))


def _lengths(span: range, size: int) -> Float[Tensor, " blocks"]:
    starts = torch.arange(0, len(span), size)
    return (len(span) - starts).clamp(max=size).float()


def _joined(x: Tensor, how: str) -> Tensor:
    x = pad(x, (0, x.shape[1] % 2, 0, x.shape[0] % 2)).unflatten(1, (-1, 2)).unflatten(0, (-1, 2))
    return x.sum((1, 3)) if how == "sum" else x.amax((1, 3))
