"""Observations and maps as arrays and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.exports.columns import (
    array_of,
    arrays_of,
    arrow_table,
    data_frame,
    needed,
    new_place,
    row_columns,
    write_parquet,
)
from regard.extension import implements
from regard.maps import AttentionMap, Observation

__all__ = ["write_map"]

# Cells along the side of a chunk: 1 MB of float32.
CHUNK = 512


@implements(Observation.to_numpy)
def _observation_to_numpy(self: Observation) -> dict[str, np.ndarray]:
    parts = {"out": self.out, "lse": self.lse, **self.stats}
    return {key: x for name, value in parts.items() for key, x in arrays_of(name, value).items()}


@implements(Observation.to_pandas)
def _observation_to_pandas(self: Observation) -> Any:
    return data_frame(_rows(self))


@implements(Observation.to_arrow)
def _observation_to_arrow(self: Observation) -> Any:
    return arrow_table(_rows(self))


@implements(Observation.to_parquet)
def _observation_to_parquet(self: Observation, path: str | Path) -> None:
    write_parquet(_rows(self), path)


@implements(AttentionMap.to_numpy)
def _map_to_numpy(self: AttentionMap) -> np.ndarray:
    return array_of(self.dense())


@implements(AttentionMap.to_zarr)
def _map_to_zarr(self: AttentionMap, path: str | Path, *, chunk: int = CHUNK) -> None:
    zarr = needed("zarr", "zarr", "a Zarr array")
    write_map(self, partial(zarr.create_array, new_place(path)), chunk, repr(self.mask))


def write_map(seen: AttentionMap, create: Callable[..., Any], chunk: int, mask: str) -> None:
    """A map as a Zarr array, tile by tile; `create` makes the array. Tiles of zeros are not written."""
    sides = min(chunk, max(1, seen.shape[2])), min(chunk, max(1, seen.shape[3]))
    array = create(shape=seen.shape, chunks=(1, 1, *sides), dtype="float32", fill_value=0.0)
    array.attrs.update({"axes": ["batch", "head", "query", "key"], "mask": mask})
    for place in _tiles(seen.shape, sides):
        tile = array_of(seen[place]).astype("float32", copy=False)
        if tile.any():
            array[place] = tile


def _tiles(
    shape: tuple[int, int, int, int], sides: tuple[int, int]
) -> Iterator[tuple[int, int, slice, slice]]:
    batch, heads, q, k = shape
    for row in range(batch):
        for head in range(heads):
            for top in range(0, q, sides[0]):
                for left in range(0, k, sides[1]):
                    yield row, head, slice(top, min(q, top + sides[0])), slice(left, min(k, left + sides[1]))


def _rows(self: Observation) -> dict[str, Any]:
    batch, heads, queries = self.lse.shape
    return row_columns((batch, heads, queries), {"lse": self.lse, **self.stats})
