"""The buffer into which a forward pass writes tile maxima."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

__all__ = ["TileMaxima", "tile_maxima_arguments"]


@dataclass(frozen=True)
class TileMaxima:
    """The maxima of each row over every `grain` keys, in units of log 2, for a band of queries from query
    `first` on."""

    scores: Float[Tensor, "maps lines rows"]
    grain: int
    first: int = 0


def tile_maxima_arguments(tile_maxima: TileMaxima | None, unused: Tensor) -> dict[str, Any]:
    """Arguments of kernels that write tile maxima; without a buffer, `unused` takes its place."""
    if tile_maxima is None:
        return {"TILE_MAXIMA": unused, "maxima_size": 0, "maxima_rows": 0, "maxima_first": 0, "GRAIN": 0}
    _, lines, rows = tile_maxima.scores.shape
    return {
        "TILE_MAXIMA": tile_maxima.scores,
        "maxima_size": lines * rows,
        "maxima_rows": rows,
        "maxima_first": tile_maxima.first,
        "GRAIN": tile_maxima.grain,
    }
