"""The distance buckets of T5 (Raffel et al., 2019): exact when near, logarithmic when far."""

from __future__ import annotations

import math

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ScoreError
from regard.memo import remembered

__all__ = ["check_buckets", "relative_buckets"]


def check_buckets(buckets: int, bidirectional: bool, max_distance: int) -> None:
    """Raise unless this many buckets can cover max_distance."""
    if bidirectional and buckets % 2:
        raise ScoreError(
            f"{buckets} buckets cannot serve two directions; use an even number, or bidirectional=False."
        )
    one_way = buckets // 2 if bidirectional else buckets
    if one_way < 2:
        raise ScoreError(f"{buckets} buckets are {one_way} per direction; at least 2 are needed.")
    if max_distance <= one_way // 2:
        raise ScoreError(
            f"max_distance is {max_distance} and a direction has {one_way} buckets, half of them for one "
            f"distance each; it must be above {one_way // 2}. Raise max_distance, or use fewer buckets."
        )


def relative_buckets(
    relative: Int[Tensor, "*shape"], buckets: int, bidirectional: bool, max_distance: int
) -> Int[Tensor, "*shape"]:
    """The bucket of each relative position k - q.

    With `bidirectional`, the first half of the buckets is for keys at or before the query, the second half
    for keys after it; otherwise all keys after the query share bucket 0 with distance 0.

    >>> import torch
    >>> relative_buckets(torch.tensor([-200, -9, -1, 0, 1, 9]), 32, True, 128)
    tensor([15,  8,  1,  0, 17, 24])
    """
    if not bidirectional:
        return _bucketize((-relative).clamp(min=0), buckets, max_distance)
    half = buckets // 2
    return _bucketize(relative.abs(), half, max_distance) + half * (relative > 0)


def _bucketize(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    starts = torch.tensor(bucket_starts(buckets, max_distance), device=distance.device)
    return torch.bucketize(distance, starts, right=True)


@remembered(32)
def bucket_starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance of every bucket but the first.

    Computed in integers, because the published formula, near + floor(log(d / near) / log(max_distance / near)
    * far), has ties (16, 32 and 64 in T5) that depend on the last bit of a device's logarithm.
    """
    near = buckets // 2
    far = buckets - near

    def reaches(distance: int, step: int) -> bool:
        return distance**far * near**step >= max_distance**step * near**far

    starts = list(range(1, near + 1))
    for step in range(1, far):
        distance = math.ceil(near * (max_distance / near) ** (step / far))
        while reaches(distance - 1, step):
            distance -= 1
        while not reaches(distance, step):
            distance += 1
        starts.append(distance)
    return tuple(starts)
