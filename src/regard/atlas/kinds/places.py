"""Positional kinds: heads that attend to the previous token, itself, the first, near ones, every n-th."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.atlas.kinds.finding import Kind, lifted, unfit
from regard.atlas.tally import Tally
from regard.cards import Finding
from regard.models.sites import APART

__all__ = ["FIRST", "LOCAL", "PREVIOUS", "SELF", "STRIDED", "comb_of"]

NO_DISTANCE = "queries and keys of cross-attention are of two texts: there is no distance between them"
# The longest stride that is searched.
STRIDE = 256
MARGIN = 0.05


def _at(distance: int, what: str):
    def judge(tally: Tally, kind: Kind) -> list[Finding]:
        if tally.role in APART:
            return [unfit(kind, NO_DISTANCE)] * tally.heads
        if not -tally.q < distance < tally.k:
            return [unfit(kind, "the text is too short")] * tally.heads
        queries = tally.flat.distance_counts[:, distance + tally.q - 1]
        weight = tally.at(distance) / queries.clamp(min=1)
        return lifted(
            kind,
            weight,
            tally.flat.by_distance(distance),
            queries,
            lambda head: f"{float(weight[head]):.2f} of the weight is on {what}",
            sharpness=tally.sharpness,
        )

    return judge


def _first(tally: Tally, kind: Kind) -> list[Finding]:
    """Mean weight on the first key, over the queries that may see it."""
    if tally.k == 0:
        return [unfit(kind, "there are no keys")] * tally.heads
    key, flat = tally.first, tally.flat
    queries = flat.key_counts[:, key]
    weight = tally.key_sums[:, key] / queries.clamp(min=1)
    chance = flat.key_sums[:, key] / queries.clamp(min=1)
    where = "the first token" if key == 0 else f"the first token (key {key})"
    return lifted(
        kind,
        weight,
        chance,
        queries,
        lambda head: f"{float(weight[head]):.2f} of the weight is on {where}",
        sharpness=tally.sharpness,
    )


def _local(tally: Tally, kind: Kind) -> list[Finding]:
    """Mean weight on near keys, except those at the one distance that has most weight."""
    if tally.role in APART:
        return [unfit(kind, NO_DISTANCE)] * tally.heads
    near = tally.distances.abs() < tally.near
    sums, even = tally.distance_sums[:, near], tally.flat.distance_sums[:, near]
    heaviest = sums.argmax(-1)
    live = tally.flat.live.clamp(min=1)
    weight = (sums.sum(-1) - sums.amax(-1)) / live
    even = even.expand(len(sums), -1)
    chance = (even.sum(-1) - even.gather(-1, heaviest[:, None])[:, 0]) / live
    left_out = tally.distances[near][heaviest]
    return lifted(
        kind,
        weight,
        chance,
        tally.flat.live,
        lambda head: (
            f"{float(weight[head]):.2f} of the weight is on keys nearer than {tally.near}, "
            f"not counting distance {int(left_out[head])}"
        ),
        sharpness=tally.sharpness,
    )


def _strided(tally: Tally, kind: Kind) -> list[Finding]:
    """The weight at one distance, or at every s-th, whichever scores most; distances 0 and 1 are left out."""
    if tally.role in APART:
        return [unfit(kind, NO_DISTANCE)] * tally.heads
    best, strides = _combs(tally)

    def evidence(head: int) -> str:
        share, stride = float(best.weight[head]), int(best.stride[head])
        first = int(tally.distances[0]) + int(best.place[head])
        if not stride:
            return f"{share:.2f} of the weight is on distance {first}"
        rest = first % stride
        teeth = f"{rest or stride}, {(rest or stride) + stride}, …"
        return f"{share:.2f} of the weight is on every {stride}th key: distances {teeth}"

    return lifted(
        kind,
        best.weight,
        best.chance,
        tally.flat.live,
        evidence,
        sharpness=tally.sharpness,
        tries=tally.k + sum(strides),
    )


def comb_of(tally: Tally, head: int) -> tuple[int, int]:
    """The best comb of distances: its stride, 0 for a single distance, and its first distance."""
    best, _ = _combs(tally)
    return int(best.stride[head]), int(tally.distances[0]) + int(best.place[head])


def _combs(tally: Tally) -> tuple[_Best, range]:
    """The best comb of every head, and the strides that were tried."""
    counted = (tally.distances != 0) & (tally.distances != 1)
    live = tally.flat.live.clamp(min=1)[:, None]
    even = (tally.flat.distance_sums / live).expand(tally.heads, -1)
    both = torch.stack([tally.distance_sums / live, even]) * counted  # (2, heads, distances)
    best = _Best(tally.heads, both)
    best.offer(both, 0)
    # A comb collects weight at its other teeth by accident, so it must be clearly better than a single line.
    best.score = best.score.clamp(min=0) + MARGIN
    strides = range(2, min(STRIDE, tally.k // 4) + 1)
    for stride in strides:
        best.offer(_folded(both, stride), stride)
    return best, strides


class _Best:
    """The best combs of distances, one per head."""

    def __init__(self, heads: int, like: Tensor) -> None:
        self.score = like.new_full((heads,), -torch.inf)
        self.weight, self.chance = torch.zeros_like(self.score), torch.zeros_like(self.score)
        self.stride, self.place = (torch.zeros_like(self.score, dtype=torch.long) for _ in range(2))

    def offer(self, both: Tensor, stride: int) -> None:
        """Replace the best combs that this stride beats; `both` are shares of weight and of chance."""
        weight, chance = both
        score, place = ((weight - chance) / (1 - chance).clamp(min=1e-9)).max(-1)
        better = score > self.score
        if not better.any():
            return
        self.score = torch.where(better, score, self.score)
        self.weight = torch.where(better, weight.gather(-1, place[:, None])[:, 0], self.weight)
        self.chance = torch.where(better, chance.gather(-1, place[:, None])[:, 0], self.chance)
        self.stride = torch.where(better, stride, self.stride)
        self.place = torch.where(better, place, self.place)


def _folded(x: Tensor, stride: int) -> Tensor:
    """Sums over every stride-th distance, (..., stride): entry r begins at the r-th distance."""
    fill = -x.shape[-1] % stride
    return torch.nn.functional.pad(x, (0, fill)).unflatten(-1, (-1, stride)).sum(-2)


PREVIOUS = Kind("previous token", _at(1, "the token before"))
SELF = Kind("self", _at(0, "the token itself"))
FIRST = Kind("first-token sink", _first)
LOCAL = Kind("local", _local)
STRIDED = Kind("strided", _strided)
