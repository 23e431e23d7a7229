"""The weight of each row on segments of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import ColumnStatistic, State
from regard.stats.checks import whole
from regard.stats.tile import Frame, MapTile

__all__ = ["SegmentMass"]

Segment = range | tuple[int, int]


@dataclass(frozen=True)
class SegmentMass(ColumnStatistic):
    """The weight of each query on each segment of the text: Σ_{j in segment} α_ij.

    Segments are ranges of keys, or (start, stop), that together cover every key once; a dict gives them
    names, stored in `names`. Shape (batch, heads, q, segments), in the given order.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> parts = SegmentMass({"prompt": range(0, 1), "text": range(1, 4)})
    >>> regard.observe(x, x, x, stats=[parts]).segment_mass[0, 0, 0]
    tensor([0.2500, 0.7500])
    """

    segments: Sequence[Segment] | Mapping[str, Segment]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = self.segments
        if isinstance(given, Mapping):
            object.__setattr__(self, "names", tuple(given))
            given = tuple(given.values())
        object.__setattr__(self, "segments", tuple(self._range(segment) for segment in given))
        if self.names is not None and len(self.names) != len(self.segments):
            raise StatisticError(
                f"SegmentMass got {len(self.segments)} segments and {len(self.names)} names; wanted as many."
            )

    @classmethod
    def bins(cls, count: int, k: int) -> SegmentMass:
        """`count` segments of equal length, up to one key: the profile over positions.

        >>> SegmentMass.bins(3, 10).segments
        (range(0, 3), range(3, 6), range(6, 10))
        """
        if not 1 <= count <= k:
            raise StatisticError(f"SegmentMass.bins got count={count} for {k} keys; wanted 1 to {k}.")
        return cls(tuple(range(i * k // count, (i + 1) * k // count) for i in range(count)))

    @property
    def ranges(self) -> tuple[range, ...]:
        """The segments, each as a range of keys."""
        return tuple(self.segments)  # type: ignore[return-value]

    def check(self, frame: Frame) -> None:
        filled = sorted((r for r in self.ranges if len(r)), key=lambda r: (r.start, r.stop))
        for before, after in pairwise([range(0), *filled, range(frame.k, frame.k)]):
            if after.start > before.stop:
                what = f"leave keys {before.stop} to {after.start - 1} out"
            elif before.stop > frame.k:
                what = f"go on to key {before.stop - 1}"
            elif after.start < before.stop:
                what = f"overlap at keys {after.start} to {min(before.stop, after.stop) - 1}"
            else:
                continue
            raise StatisticError(
                f"the segments of SegmentMass {what}, and there are {frame.k} keys; "
                f"every key from 0 to {frame.k - 1} must be in exactly one."
            )

    def columns(self, frame: Frame) -> Float[Tensor, "1 1 k segments"]:
        columns = frame.zeros(1, 1, frame.k, len(self.ranges))
        for index, segment in enumerate(self.ranges):
            columns[:, :, segment.start : segment.stop, index] = 1
        return columns

    def update(self, state: State, tile: MapTile) -> None:
        sums = tile.of_rows(state["sums"])
        first = tile.cols.start
        for index, segment in enumerate(self.ranges):
            start, stop = max(segment.start, first), min(segment.stop, tile.cols.stop)
            if start < stop:
                sums[..., index] += tile.weights[..., start - first : stop - first].sum(-1)

    folds = ColumnStatistic.folds

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads q segments"]:
        return state["sums"]

    def _range(self, segment: Segment) -> range:
        if isinstance(segment, range) and segment.step != 1:
            raise StatisticError(f"SegmentMass got {segment!r}; a segment is a range of keys with step 1.")
        if not isinstance(segment, range) and not (isinstance(segment, tuple) and len(segment) == 2):
            raise StatisticError(
                f"SegmentMass got {segment!r}; a segment is range(start, stop) or (start, stop)."
            )
        start, stop = (segment.start, segment.stop) if isinstance(segment, range) else segment
        start = whole(self, "start", start, 0)
        return range(start, whole(self, "stop", stop, start))
