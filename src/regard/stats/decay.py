"""The decay of attention with distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.checks import one_of, whole
from regard.stats.counts import counted_part, counts_shape
from regard.stats.diagonals import diagonal_cells, diagonals, of_diagonals
from regard.stats.folds import DiagonalFold, Fold, PairFold
from regard.stats.skew import skewed_sums
from regard.stats.tile import Frame, MapTile

__all__ = ["Decay", "DecayCurve", "octave_starts"]


class DecayCurve(NamedTuple):
    """Mean weight by distance, and the number of pairs of each mean. In log bins, distances are not
    integers."""

    distance: Num[Tensor, " distances"]
    mean: Float[Tensor, "batch heads distances"]
    # This public field shadows tuple.count, which a curve doesn't need.
    count: Int64[Tensor, "batch heads distances"]  # pyright: ignore[reportIncompatibleMethodOverride]


@dataclass(frozen=True)
class Decay(Statistic):
    """Attention by distance: A(d) = mean of α_ij over the pairs with i - j = d that may attend.

    A `DecayCurve` for d = 0, 1, … k - 1, the query's position minus the key's; with `signed`, from 1 - q on,
    which includes keys after the query. The mean of no pairs is 0. `skip_keys` leaves out the first keys,
    whose sinks would hide the decay.

    With bins="log", distance 0 is a bin, followed by `per_octave` bins per doubling; empty bins are left out.
    A bin's mean is over all its pairs; its distance is the geometric mean of its first and last distance.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> curve = regard.observe(x, x, x, mask=regard.Causal(), stats=[Decay()]).decay
    >>> curve.mean, curve.count
    (tensor([[[0.6111, 0.4167, 0.3333]]]), tensor([[[3, 2, 1]]]))
    """

    bins: str = "linear"
    per_octave: int = 4
    skip_keys: int = 0
    signed: bool = False

    def __post_init__(self) -> None:
        one_of(self, "bins", self.bins, ("linear", "log"))
        whole(self, "per_octave", self.per_octave, 1)
        whole(self, "skip_keys", self.skip_keys, 0)

    def init(self, frame: Frame) -> State:
        length = diagonals(frame)
        return {
            "sums": frame.sums(frame.batch, frame.heads, length),
            "counts": frame.sums(*counts_shape(frame), length, dtype=torch.int64),
        }

    def update(self, state: State, tile: MapTile) -> None:
        cut = max(0, self.skip_keys - tile.cols.start)
        if cut >= len(tile.cols):
            return
        sums = tile.diagonal_sums if cut == 0 else skewed_sums(tile.weights[..., cut:])
        of_diagonals(tile.of_heads(state["sums"]), tile, cut).add_(sums)
        if (part := counted_part(state["counts"], tile)) is not None:
            counts, allowed = part
            if allowed is None:
                cells = diagonal_cells(len(tile.rows), len(tile.cols) - cut, counts.device)
            else:
                # A tile has far fewer rows than the 2^24 up to which float32 counts exactly.
                cells = skewed_sums(allowed[..., cut:].float()).long()
            of_diagonals(counts, tile, cut).add_(cells)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        pairs = PairFold(state["counts"], "diagonals", self.skip_keys)
        return [DiagonalFold(state["sums"], self.skip_keys, past=not self.signed), pairs]

    def finish(self, state: State, frame: Frame) -> DecayCurve:
        lowest = 1 - max(frame.q, 1) if self.signed else 0
        distance = torch.arange(lowest, frame.k, device=frame.device)
        sums, counts = (state[name][..., : len(distance)].flip(-1) for name in ("sums", "counts"))
        if self.bins == "log" and len(distance):
            starts = octave_starts(lowest, frame.k, self.per_octave)
            sizes = [stop - start for start, stop in pairwise([*starts, frame.k])]
            sums, counts = (
                torch.stack([part.sum(-1) for part in x.split(sizes, -1)], -1) for x in (sums, counts)
            )
            distance = _middles(starts, frame)
        mean = sums / counts.clamp(min=1)
        return DecayCurve(distance, mean, counts.expand(frame.batch, frame.heads, -1))


def octave_starts(lowest: int, stop: int, per_octave: int) -> list[int]:
    """The starts of log bins for the distances lowest … stop - 1, mirrored around 0, which has its own bin.

    >>> octave_starts(-5, 10, per_octave=2)
    [-5, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8]
    """
    longest = max(-lowest + 1, stop)
    octaves = longest.bit_length() * per_octave + 1
    ahead = {0, *(math.ceil(2 ** (i / per_octave)) for i in range(octaves))}
    # A bin a … b - 1 of keys before the query mirrors 1 - b … -a after it.
    starts = {lowest} | ahead | {1 - start for start in ahead}
    return sorted(start for start in starts if lowest <= start < stop)


def _middles(starts: list[int], frame: Frame) -> Float[Tensor, " distances"]:
    """The geometric mean of the first and last distance of each bin, with their sign."""
    ends = pairwise([*starts, frame.k])
    middles = [math.copysign(math.sqrt(start * (stop - 1)), start) for start, stop in ends]
    return torch.tensor(middles, dtype=frame.dtype, device=frame.device)
