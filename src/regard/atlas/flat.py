"""The flat head: even weights over the visible keys, the baseline for chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.atlas.repeats import token_mass
from regard.atlas.words import Words
from regard.errors import RecordingError
from regard.maps import AttentionMap
from regard.masks import Causal, Mask
from regard.stats import ColumnMass, Custom, Decay, MapTile

__all__ = ["Flat"]


@dataclass(frozen=True)
class Flat:
    """A head with even weights over the keys that its mask allows: the baseline for chance.

    It has one head if the mask is the same for all heads. Under a plain causal mask its sums are harmonic
    numbers, computed in closed form; under other masks they take a pass over the map.

    >>> Flat(Causal(), 1, 3, 3).by_distance(1)
    tensor([0.4167], dtype=torch.float64)
    """

    mask: Mask | None
    heads: int
    q: int
    k: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def beside(cls, seen: AttentionMap) -> Flat:
        """The flat head under the mask of a map with one batch row."""
        _, heads, q, k = seen.shape
        told_apart = seen.mask is not None and seen.mask.heads not in (None, 1)
        return cls(seen.mask, heads if told_apart else 1, q, k, seen.device)

    @property
    def offset(self) -> int:
        """Position of query 0."""
        return self.k - self.q

    @cached_property
    def map(self) -> AttentionMap:
        """The attention map of the flat head."""
        q, k = (torch.zeros(1, self.heads, n, 1, device=self.device) for n in (self.q, self.k))
        seen = AttentionMap.of(q, k, mask=self.mask)
        if self._harmonic:
            lse = (torch.arange(self.q, device=self.device) + self.offset + 1).float().log()
            return AttentionMap(seen.problem, lse.expand(1, 1, -1))
        return seen

    @cached_property
    def visible(self) -> Int64[Tensor, "heads q"]:
        """The number of keys that each query may see."""
        return self.map.lse[0].exp().round().long()

    @cached_property
    def live(self) -> Int64[Tensor, " heads"]:
        """The number of queries that may see any key."""
        return (self.visible > 0).sum(-1)

    @property
    def distance_counts(self) -> Int64[Tensor, "heads distances"]:
        """The number of pairs at each distance 1 - q … k - 1."""
        return self._tallies[1]

    @property
    def distance_sums(self) -> Float[Tensor, "heads distances"]:
        """The flat head's weight on each distance 1 - q … k - 1, summed over queries."""
        return self._tallies[0]

    @property
    def key_sums(self) -> Float[Tensor, "heads k"]:
        """The flat head's weight on each key, summed over queries."""
        return self._tallies[2]

    @property
    def key_counts(self) -> Int64[Tensor, "heads k"]:
        """The number of queries that may see each key."""
        return self._tallies[3]

    def by_distance(self, distance: int) -> Float[Tensor, " heads"]:
        """The mean weight of an even spread at one distance, over the queries that have such a key."""
        at = distance + self.q - 1
        return self.distance_sums[:, at] / self.distance_counts[:, at].clamp(min=1)

    def by_token(self, words: Words, shift: int, places: str) -> Float[Tensor, "heads q"]:
        """The weight of an even spread on keys chosen by token; computed once for all layers."""
        name = (shift, places, id(words))
        if name not in self._by_token:
            if words.q_ids is None or words.k_ids is None:
                raise RecordingError(f"the tokens are not known: {words.no_ids}.")
            # Keep the words alive with the result: the cache key is their id, which could be reused
            # otherwise.
            self._by_token[name] = (token_mass(self.map, words.q_ids, words.k_ids, shift, places), words)
        return self._by_token[name][0]

    @cached_property
    def _by_token(self) -> dict[tuple[int, str, int], tuple[Tensor, Words]]:
        return {}

    def far(self, least: int, first: int) -> Int64[Tensor, "heads q"]:
        """The number of keys that each query may see at distance `least` or more, from key `first` on."""
        if self._harmonic:
            position = torch.arange(self.q, device=self.device) + self.offset
            return (position - least + 1 - first).clamp(min=0)[None]

        def count(tile: MapTile) -> Int64[Tensor, "batch heads q"]:
            rows = torch.arange(tile.rows.start, tile.rows.stop, device=self.device) + self.offset
            cols = torch.arange(tile.cols.start, tile.cols.stop, device=self.device)
            kept = ((rows[:, None] - cols).abs() >= least) & (cols >= first)
            allowed = (
                torch.ones_like(tile.weights, dtype=torch.bool) if tile.allowed is None else tile.allowed
            )
            return (allowed & kept).expand_as(tile.weights).sum(-1)

        return self.map.stats(Custom(count, "rows").named("far"))["far"][0]

    @property
    def _harmonic(self) -> bool:
        return self.mask == Causal() and 0 < self.q <= self.k

    @cached_property
    def _tallies(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self._harmonic:
            return self._harmonic_tallies()
        found = self.map.stats(Decay(signed=True), ColumnMass(), Custom(_seen_by, "columns").named("counts"))
        curve = found["decay"]
        sums = curve.mean[0].double() * curve.count[0]
        return sums, curve.count[0], found["column_mass"][0].double(), found["counts"][0]

    def _harmonic_tallies(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query p gives 1 / (p + 1) to each of its keys, so key j and distance j both get its sum over p >=
        j."""
        positions = torch.arange(self.k, device=self.device)
        each = torch.where(positions >= self.offset, 1 / (positions + 1).double(), 0.0)
        sums = each.flip(0).cumsum(0).flip(0)
        counts = self.k - positions.clamp(min=self.offset)
        ahead = sums.new_zeros(self.q - 1)
        return (
            torch.cat([ahead, sums])[None],
            torch.cat([ahead.long(), counts])[None],
            sums[None],
            counts[None],
        )


def _seen_by(tile: MapTile) -> Int64[Tensor, "batch heads k"]:
    """The number of a tile's queries that may see each of its keys."""
    if tile.allowed is None:
        return torch.full_like(tile.weights[..., 0, :], len(tile.rows), dtype=torch.int64)
    return tile.allowed.expand_as(tile.weights).sum(-2)
