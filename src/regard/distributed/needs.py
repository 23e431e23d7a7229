"""Computes which keys the queries of each rank need, from the mask alone, so that every rank can do it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from regard.distributed.sharding import Sharding
from regard.engine.schedule import schedule
from regard.masks import Mask
from regard.masks.within import Moved
from regard.memo import remembered

__all__ = ["Needs", "moved", "visible"]

BLOCK = 512


def moved(mask: Mask | None, shift: int) -> Mask | None:
    """A mask for positions that count from `shift`."""
    if mask is None or mask.relative or shift == 0:
        return mask
    return Moved(mask, shift, shift)


@remembered(4096)
def visible(mask: Mask | None, queries: range, keys: range) -> range:
    """The keys from the first to the last that any query may see; ranges are positions.

    This is exact for masks of one interval per query, and rounded to tiles of 128 for others.

    >>> from regard.masks import Causal, Window
    >>> visible(Causal() & Window(3), range(10, 20), range(0, 15))
    range(8, 15)
    """
    if mask is None or not queries or not keys:
        return keys if queries else range(0)
    spans = mask.spans(torch.arange(queries.start, queries.stop))
    if spans is not None:
        low, high = (x.clamp(keys.start, keys.stop) for x in torch.broadcast_tensors(*spans))
        seen = low < high
        return range(int(low[seen].min()), int(high[seen].max())) if bool(seen.any()) else range(0)
    local = moved(mask, keys.start)
    rows = schedule(local, len(queries), len(keys), BLOCK, queries.start - keys.start)
    runs = [run for row in rows for run in (*row.full, *row.partial)]
    if not runs:
        return range(0)
    return range(keys.start + min(r.start for r in runs), keys.start + max(r.stop for r in runs))


@dataclass(frozen=True)
class Needs:
    """The keys that each rank needs of each other, for queries and keys in two layouts under one (bound)
    mask.

    `offset` is the position of query 0; keys are at their own index.
    """

    mask: Mask | None
    queries: Sharding
    keys: Sharding

    @property
    def offset(self) -> int:
        return self.keys.length - self.queries.length

    def placed(self, piece: range) -> range:
        """The positions of some queries."""
        return range(piece.start + self.offset, piece.stop + self.offset)

    def of(self, rank: int, owner: int) -> tuple[range, ...]:
        """The keys of `owner` that the queries of `rank` need: at most one range of each of its pieces."""
        found = []
        for keys in self.keys.shards[owner]:
            parts = [visible(self.mask, self.placed(q), keys) for q in self.queries.shards[rank]]
            parts = [part for part in parts if part]
            if parts:
                found.append(range(min(p.start for p in parts), max(p.stop for p in parts)))
        return tuple(found)

    def count(self, rank: int, owner: int) -> int:
        return sum(map(len, self.of(rank, owner)))

    def received(self, rank: int) -> int:
        """The number of keys that a rank receives from the others."""
        return sum(self.count(rank, owner) for owner in range(self.keys.ranks) if owner != rank)

    def sent(self, rank: int) -> int:
        """The number of keys that a rank sends to the others; a key that two ranks need counts twice."""
        return sum(self.count(other, rank) for other in range(self.queries.ranks) if other != rank)
