"""Curves of a head, reduced to what a chart can show."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.stats.decay import octave_starts

__all__ = ["POINTS", "CurveSums", "thinned"]

# The most points of a curve; charts have fewer pixels.
POINTS = 2048
PER_OCTAVE = 8


class CurveSums:
    """Weight by distance and mass by key, added up over bands of queries."""

    def __init__(self, queries: int, keys: int) -> None:
        self.queries = queries
        self.mass: Float[Tensor, " k"] = torch.zeros(keys, dtype=torch.float64)
        self.sums: Float[Tensor, " k"] = torch.zeros(keys, dtype=torch.float64)
        self.counts: Int64[Tensor, " k"] = torch.zeros(keys, dtype=torch.int64)

    def add(self, rows: range, seen: dict[str, Any]) -> None:
        """Add the `column_mass` and the linear `decay` of some queries, observed as a map of their own."""
        self.mass += seen["column_mass"][0, 0]
        decay = seen["decay"]
        # A map of some rows is measured as if its last query were at the last key, but it is `early`
        # positions before that.
        early = self.queries - rows.stop
        kept = len(self.sums) - early
        self.sums[:kept] += (decay.mean.double() * decay.count)[0, 0, early:]
        self.counts[:kept] += decay.count[0, 0, early:]

    def finish(self) -> dict[str, dict[str, list[float]]]:
        """`decay`: the mean weight by distance in bins of an eighth of an octave; `profile`: mass by key.

        A point of the profile is the mean mass of the keys around its position.
        """
        distance, weight = [], []
        for start, stop in pairwise([*octave_starts(0, len(self.sums), PER_OCTAVE), len(self.sums)]):
            pairs = int(self.counts[start:stop].sum())
            if pairs:
                distance.append(math.sqrt(start * (stop - 1)))
                weight.append(float(self.sums[start:stop].sum()) / pairs)
        position, mass = thinned(self.mass)
        return {
            "decay": {"distance": distance, "weight": weight},
            "profile": {"position": position, "mass": mass},
        }


def thinned(x: Float[Tensor, " n"]) -> tuple[list[float], list[float]]:
    """At most `POINTS` positions and values; of a longer curve, means over neighbours.

    >>> thinned(torch.tensor([1.0, 3.0]))
    ([0.0, 1.0], [1.0, 3.0])
    """
    step = -(-len(x) // POINTS) if len(x) else 1
    parts = x.double().split(step)
    middles = [start + (len(part) - 1) / 2 for start, part in zip(range(0, len(x), step), parts, strict=True)]
    return middles, [float(part.mean()) for part in parts]
