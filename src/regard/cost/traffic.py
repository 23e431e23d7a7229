"""The keys that each rank sends and the pairs that it computes, if a sequence is sharded over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.cost.reach import Reach
from regard.errors import RegardError

__all__ = ["LAYOUTS", "Traffic", "traffic"]

LAYOUTS = ("contiguous", "head-tail")
# The most (run, rank) pairs to process at once, which bounds memory for any number of ranks.
BLOCK = 1 << 24


@dataclass(frozen=True, eq=False)
class Traffic:
    """Per rank: its queries, the allowed pairs that it computes, the keys that it sends and receives.

    A key that is sent to two ranks counts twice.
    """

    rows: Int64[Tensor, " ranks"]
    pairs: Int64[Tensor, " ranks"]
    sent: Int64[Tensor, " ranks"]
    received: Int64[Tensor, " ranks"]


def traffic(length: int, ranks: int, layout: str, reach: Reach, causal: bool = True) -> Traffic:
    """Count from the mask: a key is sent to a rank if one of that rank's queries may see it.

    `contiguous` gives each rank one run of positions; `head-tail`, one run near the start and its mirror
    image near the end. A rank gets, of each run, all keys from the first to the last that it needs.

    >>> found = traffic(1000, 4, "contiguous", Reach())
    >>> found.sent.tolist(), found.pairs.tolist()
    ([750, 500, 250, 0], [31375, 93875, 156375, 218875])
    >>> traffic(1000, 4, "head-tail", Reach()).pairs.tolist()
    [125125, 125125, 125125, 125125]
    """
    if layout not in LAYOUTS:
        raise RegardError(f"there is no layout {layout!r}; layouts are: {', '.join(LAYOUTS)}.")
    if not 1 <= ranks <= length:
        raise RegardError(f"{ranks} ranks for {length} tokens; wanted 1 rank or more, and a token for each.")
    runs = _runs(length, ranks, layout)
    rows = torch.tensor([sum(map(len, own)) for own in runs])
    pairs = torch.tensor([sum(_pairs(reach, run, causal, length) for run in own) for own in runs])
    sent, received = _sent(runs, reach, causal, length)
    return Traffic(rows, pairs, sent, received)


def _runs(length: int, ranks: int, layout: str) -> list[list[range]]:
    """The positions that each rank holds."""
    parts = ranks if layout == "contiguous" else 2 * ranks
    sizes = [length // parts + (part < length % parts) for part in range(parts)]
    runs = [range(a, b) for a, b in pairwise([0, *accumulate(sizes)])]
    if layout == "contiguous":
        return [[run] for run in runs]
    return [[runs[rank], runs[-1 - rank]] for rank in range(ranks)]


def _pairs(reach: Reach, run: range, causal: bool, length: int) -> int:
    if not run:
        return 0
    if causal:
        return reach.pairs(len(run), run.stop)
    # Pairs of the queries up to the end of the run, minus those of the queries before it.
    if reach.kind == "full":
        return len(run) * length
    raise RegardError(
        f"{reach!r} in a layer that is not causal is not planned; wanted causal layers, or full."
    )


def _sent(
    runs: list[list[range]], reach: Reach, causal: bool, length: int
) -> tuple[Int64[Tensor, " ranks"], Int64[Tensor, " ranks"]]:
    """For all runs of keys and all ranks: the keys from the first to the last that the rank needs."""
    ranks = len(runs)
    keys = torch.tensor([[run.start, run.stop] for own in runs for run in own])
    owner = torch.arange(ranks).repeat_interleave(torch.tensor([len(own) for own in runs]))
    sent, received = torch.zeros(ranks, dtype=torch.int64), torch.zeros(ranks, dtype=torch.int64)
    queries = torch.tensor([[[run.start, run.stop] for run in own] for own in runs])  # (ranks, runs, 2)
    for part in torch.arange(len(keys)).split(max(1, BLOCK // ranks)):
        first, last = keys[part, 0, None], keys[part, 1, None]
        low, high = torch.full((len(part), ranks), length), torch.zeros(len(part), ranks, dtype=torch.int64)
        for run in range(queries.shape[1]):
            start, stop = queries[:, run, 0], queries[:, run, 1]
            seen_from, seen_to = _seen(reach, causal, start, stop, length)
            a, b = torch.maximum(first, seen_from), torch.minimum(last, seen_to)
            some = (a < b) & (start < stop)
            low = torch.where(some, torch.minimum(low, a), low)
            high = torch.where(some, torch.maximum(high, b), high)
        count = (high - low).clamp(min=0)
        count[torch.arange(len(part)), owner[part]] = 0
        sent.index_add_(0, owner[part], count.sum(1))
        received += count.sum(0)
    return sent, received


def _seen(reach: Reach, causal: bool, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The start and stop of the keys that queries start … stop - 1 may see."""
    end = stop if causal else torch.full_like(stop, length)
    if reach.kind in ("full", "sparse"):
        return torch.zeros_like(start), end
    size = reach.size or 1
    if reach.kind == "window":
        return (start - size + 1).clamp(min=0), end
    if reach.kind == "chunk":
        return start // size * size, end
    raise RegardError(f"{reach!r} is not planned over ranks; wanted full, window, chunk or sparse.")
