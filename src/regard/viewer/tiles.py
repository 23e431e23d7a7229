"""Tiles of a head, from exact cells, from the pyramid, or from the cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from jaxtyping import Float
from torch import Tensor

from regard.errors import MapError
from regard.viewer.heads import Head
from regard.viewer.pooling import TILE, levels_of, pool, span_of
from regard.viewer.pyramid import COARSE, Pyramid

__all__ = ["TileCache", "direct", "read_thumb", "read_tile", "tile_shape"]

# Maps of at most this many cells are pooled on every access, which takes at most a fifth of a second.
DIRECT = 1 << 26

Pair = tuple[Tensor, Tensor]


class TileCache:
    """A thread-safe LRU cache of tiles, limited in bytes.

    >>> import torch
    >>> cache = TileCache(100)
    >>> cache.put("a", (torch.zeros(10), torch.zeros(10)))
    >>> cache.put("b", (torch.zeros(10), torch.zeros(10)))
    >>> cache.get("a"), cache.nbytes
    (None, 80)
    """

    def __init__(self, most: int) -> None:
        self.most, self.nbytes = most, 0
        self._kept: OrderedDict[Hashable, Pair] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Pair | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, tiles: Pair) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = tiles
            self.nbytes += _size(tiles)
            while self.nbytes > self.most and self._kept:
                self.nbytes -= _size(self._kept.popitem(last=False)[1])


def direct(level: int, queries: int, keys: int) -> bool:
    """Whether tiles of a level are computed from exact cells; others come from the pyramid."""
    return level < COARSE or queries * keys <= DIRECT


def tile_shape(queries: int, keys: int, level: int, row: int, col: int) -> tuple[int, int]:
    """The number of rows and columns of a tile, in blocks; MapError if there is no such tile."""
    levels = levels_of(queries, keys)
    if not 0 <= level < levels:
        raise MapError(f"level {level} is out of range: this map has {levels} (level 0 to {levels - 1}).")
    size = TILE << level
    for name, index, length in (("row", row, queries), ("col", col, keys)):
        tiles = -(-length // size)
        if not 0 <= index < tiles:
            raise MapError(
                f"{name} {index} is out of range: level {level} has {tiles} ({name} 0 to {tiles - 1})."
            )
    rows, cols = span_of(row, level, queries), span_of(col, level, keys)
    return -(-len(rows) // (1 << level)), -(-len(cols) // (1 << level))


def read_tile(head: Head, level: int, row: int, col: int) -> Pair:
    """The mean and the largest weights of a tile, computed from exact cells."""
    found = pool(head, span_of(row, level, head.queries), span_of(col, level, head.keys), level)
    return found.mean, found.max


def read_thumb(
    source: Head | Pyramid, queries: int, keys: int, size: int, how: str
) -> Float[Tensor, "rows cols"]:
    """The whole map, pooled to at most `size` × `size` blocks."""
    level = max(0, (-(-max(queries, keys) // size) - 1).bit_length())
    if isinstance(source, Pyramid):
        level = max(level, COARSE)
        return source.level(level, how)
    # One pass of the native kernels, if available: a tenth of the time of exact tiles.
    return source.map.pooled(1 << level, how)[0, 0].float().cpu()


def _size(tiles: Pair) -> int:
    return sum({x.data_ptr(): x.numel() * x.element_size() for x in tiles}.values())
