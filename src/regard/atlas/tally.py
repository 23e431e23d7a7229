"""The sums that one pass over a layer's map collects for all of its heads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.atlas.flat import Flat
from regard.atlas.words import Words
from regard.maps import AttentionMap
from regard.stats import ColumnMass, Decay, DecayCurve, Entropy, MaxScore

__all__ = ["SINKS", "Tally", "last_queries", "late_decay", "near_of", "tally_of"]

# Keys at distances below this are near; from four times this distance on they are far. Short texts have
# smaller limits.
NEAR = 64
# The number of keys that usually act as sinks, as in StreamingLLM.
SINKS = 4


@dataclass(frozen=True, eq=False)
class Tally:
    """The sums from which every kind is computed: one batch row of one map, all heads, nothing longer than
    the text.

    Distances run from 1 - q to k - 1, the query's position minus the key's.
    """

    role: str
    map: AttentionMap
    flat: Flat
    words: Words
    distance_sums: Float[Tensor, "heads distances"]
    key_sums: Float[Tensor, "heads k"]
    entropy: Float[Tensor, "heads q"]
    top_weight: Float[Tensor, "heads q"]
    top_key: Int64[Tensor, "heads q"]

    @property
    def heads(self) -> int:
        return self.map.shape[1]

    @property
    def q(self) -> int:
        return self.map.shape[2]

    @property
    def k(self) -> int:
        return self.map.shape[3]

    @property
    def near(self) -> int:
        """Distances below this are near: 64, or a sixteenth of a text shorter than 1024."""
        return near_of(self.k)

    @property
    def far(self) -> int:
        """Distances from here on are far: four times the limit of near."""
        return 4 * self.near

    @cached_property
    def distances(self) -> Int64[Tensor, " distances"]:
        return torch.arange(1 - max(self.q, 1), self.k, device=self.map.device)

    @cached_property
    def positions(self) -> Int64[Tensor, " q"]:
        """The position of each query."""
        return torch.arange(self.q, device=self.map.device) + self.k - self.q

    @cached_property
    def mass(self) -> Float[Tensor, "heads q"]:
        """The total weight of each row: 1 minus the sink's share, and 0 for rows that see nothing."""
        lse, sink = self.map.lse[0].double(), self.map.problem.sink
        taken = 0.0 if sink is None else (sink.double()[:, None] - lse).exp()
        return torch.where(lse == -torch.inf, 0.0, 1.0 - taken).clamp(0, 1)

    @cached_property
    def sharpness(self) -> Float[Tensor, " heads"]:
        """The mean heaviest weight of the rows that see any key."""
        live = (self.mass > 0).sum(-1).clamp(min=1)
        return self.top_weight.sum(-1) / live

    @cached_property
    def first(self) -> int:
        """The first key that any query may see; padding on the left comes before it."""
        seen = (self.flat.key_counts.amax(0) > 0).nonzero()
        return int(seen[0]) if len(seen) else 0

    def at(self, distance: int) -> Float[Tensor, " heads"]:
        """The weight on one distance, summed over queries."""
        return self.distance_sums[:, distance + self.q - 1]


def near_of(keys: int) -> int:
    """The limit of near in a text of this many keys."""
    return max(2, min(NEAR, keys // 16))


def tally_of(
    seen: AttentionMap, role: str = "decoder", words: Words | None = None, flat: Flat | None = None
) -> Tally:
    """All sums of a map with one batch row, in one pass."""
    found = seen.stats(Decay(signed=True), ColumnMass(), Entropy(), MaxScore())
    curve, top, lse = found["decay"], found["max_score"], seen.lse[0]
    weight = (top.value[0] - lse.masked_fill(lse == -torch.inf, torch.inf)).exp()
    return Tally(
        role=role,
        map=seen,
        flat=flat or Flat.beside(seen),
        words=words or Words(),
        distance_sums=curve.mean[0].double() * curve.count[0],
        key_sums=found["column_mass"][0].double(),
        entropy=found["entropy"][0].double(),
        top_weight=weight.double(),
        top_key=top.key[0],
    )


def late_decay(seen: AttentionMap, reach: int, *skip_keys: int) -> list[DecayCurve]:
    """Mean weight by distance, for 0 … reach, over the queries at position `reach` and later.

    Early queries spread their weight over fewer keys and contribute to short distances only, so a mean over
    all queries falls off more steeply than any single query. Here all distances have the same queries: if
    every row follows a law, so does the mean. Returns one curve for each number of first keys to skip.

    >>> import regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> late_decay(regard.AttentionMap.of(x, x, mask=regard.Causal()), 2, 0)[0].mean
    tensor([[[0.2917, 0.2917, 0.2917]]])
    """
    _, _, q, k = seen.shape
    late = last_queries(seen, min(q, k - reach))
    found = late.stats(*(Decay(skip_keys=skip).named(f"skip_{skip}") for skip in skip_keys))
    return [DecayCurve(*(x[..., : reach + 1] for x in curve)) for curve in found.values()]


def last_queries(seen: AttentionMap, count: int) -> AttentionMap:
    """The map of the last queries only, each still at its own position."""
    rows = range(seen.shape[2] - count, seen.shape[2])
    return AttentionMap(seen.problem.block(rows), seen.lse[:, :, rows.start :])
