"""Where a forward pass leaves the largest scores of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

__all__ = ["TileTops", "tops_arguments"]


@dataclass(frozen=True)
class TileTops:
    """Room for the largest score of each row's `grain` keys, in units of log 2, of a band of blocks of
    queries that begins with the query `first`."""

    scores: Float[Tensor, "maps lines rows"]
    grain: int
    first: int = 0


def tops_arguments(tops: TileTops | None, unused: Tensor) -> dict[str, Any]:
    """What kernels take that tell them; without room for them `unused` stands in its place."""
    if tops is None:
        return {"TILE_TOPS": unused, "tops_size": 0, "top_rows": 0, "top_first": 0, "GRAIN": 0}
    _, lines, rows = tops.scores.shape
    return {
        "TILE_TOPS": tops.scores,
        "tops_size": lines * rows,
        "top_rows": rows,
        "top_first": tops.first,
        "GRAIN": tops.grain,
    }
