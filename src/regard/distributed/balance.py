"""Shards with equal numbers of allowed pairs."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.masks import Mask

__all__ = ["CLOSE", "cut", "folded", "row_pairs", "spread"]

# The tolerated difference between the most and the least loaded rank, relative to the mean.
CLOSE = 0.01
# The most cells of a mask to evaluate at once.
CELLS = 1 << 24


def row_pairs(mask: Mask | None, length: int) -> Int64[Tensor, " q"]:
    """The number of keys that each query may see, summed over the mask's batch rows and heads.

    >>> from regard.masks import Causal
    >>> row_pairs(Causal(), 4)
    tensor([1, 2, 3, 4])
    """
    if mask is None:
        return torch.full((length,), length)
    spans = mask.spans(torch.arange(length))
    if spans is not None:
        low, high = (x.clamp(0, length) for x in spans)
        return (high - low).clamp(min=0).reshape(-1, length).sum(0)
    rows = max(1, CELLS // (length * (mask.batch or 1) * (mask.heads or 1)))
    bands = []
    for start in range(0, length, rows):
        allowed = mask.tile((start, min(start + rows, length)), (0, length))
        bands.append(allowed.sum(-1).reshape(-1, allowed.shape[-2]).sum(0))
    return torch.cat(bands)


def spread(loads: tuple[int, ...]) -> float:
    """The difference between the most and the least loaded rank, relative to the mean.

    >>> spread((90, 110))
    0.2
    """
    mean = sum(loads) / len(loads)
    return (max(loads) - min(loads)) / mean if mean else 0.0


def folded(counts: Int64[Tensor, " q"], ranks: int) -> tuple[tuple[range, ...], ...]:
    """For each rank a run from the start and a run from the end, with equal numbers of rows and of pairs.

    >>> folded(torch.tensor([1, 2, 3, 4, 5, 6, 7, 8]), 2)
    ((range(0, 2), range(6, 8)), (range(2, 2), range(2, 6)))
    """
    before = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    low, high, shards = 0, len(counts), []
    for rank in range(ranks):
        rows, left = -(-(high - low) // (ranks - rank)), int(before[high] - before[low])
        head = torch.arange(rows + 1)
        load = before[low + head] - before[low] + before[high] - before[high - rows + head]
        first = int((load - left / (ranks - rank)).abs().argmin())
        shards.append((range(low, low + first), range(high - rows + first, high)))
        low, high = low + first, high - rows + first
    return tuple(shards)


def cut(counts: Int64[Tensor, " q"], ranks: int) -> tuple[tuple[range, ...], ...]:
    """One run per rank with equal numbers of pairs; each has at least one row.

    >>> cut(torch.tensor([1, 2, 3, 4, 5]), 2)
    ((range(0, 3),), (range(3, 5),))
    """
    before = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).double()
    edges = [0]
    for rank in range(1, ranks):
        edge = int((before - before[-1] * rank / ranks).abs().argmin())
        edges.append(min(max(edge, edges[-1] + 1), len(counts) - (ranks - rank)))
    edges.append(len(counts))
    return tuple((range(a, b),) for a, b in pairwise(edges))
