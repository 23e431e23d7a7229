"""The pieces a map is read in: some rows of one head, and the keys they can see.

The pieces follow from the shapes and the mask alone, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.schedule import Row, chunks, schedule
from regard.engine.scoring import Place
from regard.masks import Mask

__all__ = ["Span", "Unit", "spans_of", "units"]

# At most so many rows: what a piece collects about columns and diagonals is added up again for every piece.
ROWS = 512
# About so many pieces at least, if there are rows enough: threads find something to do.
PIECES = 8
# At most so many pairs whose mask is written out, one byte each, for one piece.
PAIRS = 1 << 24


@dataclass(frozen=True)
class Span:
    """Neighbouring keys, and which pairs may attend where not all of them may."""

    keys: range
    allowed: Bool[Tensor, "q keys"] | None = None


@dataclass(frozen=True)
class Unit:
    """Some rows of one head and the keys they visit, in rising order; `low` and `high` confine a row more."""

    batch: int
    head: int
    rows: range
    spans: tuple[Span, ...]
    low: Int64[Tensor, "all_q"] | None = None
    high: Int64[Tensor, "all_q"] | None = None

    @property
    def keys(self) -> range:
        """From the first to the last key visited."""
        return range(self.spans[0].keys.start, self.spans[-1].keys.stop)


def units(problem: Problem, skip: int = 0) -> Iterator[Unit]:
    """The pieces of a map without its first `skip` keys, in a fixed order."""
    mask = problem.mask
    several = mask is not None and (mask.batch or 1) > 1
    for batch in range(problem.batch):
        own = mask.select(batch) if several and mask is not None else mask
        spans = spans_of(own, problem)
        if spans is None and own is not None:
            yield from _by_schedule(problem, own, batch, skip)
        else:
            yield from _by_spans(problem, spans, batch, skip)


def spans_of(mask: Mask | None, problem: Problem) -> tuple[Tensor, Tensor] | None:
    """The keys each query may see as one interval, (batch or 1, heads or 1, q); None if there are none."""
    positions = torch.arange(problem.q_len) + problem.offset
    spans = None if mask is None else mask.spans(positions)
    if spans is None:
        return None
    low, high = (edge.clamp(0, problem.k_len) for edge in torch.broadcast_tensors(*spans))
    lead = (1,) * (3 - low.ndim)
    return low.reshape(*lead, *low.shape).contiguous(), high.reshape(*lead, *high.shape).contiguous()


def _by_spans(problem: Problem, spans: tuple[Tensor, Tensor] | None, batch: int, skip: int) -> Iterator[Unit]:
    for head in range(problem.heads):
        low = high = None
        if spans is not None:
            low, high = (edge[0, head if edge.shape[1] > 1 else 0] for edge in spans)
        for rows in chunks(range(problem.q_len), _rows(problem)):
            first, last = skip, problem.k_len
            if low is not None and high is not None:
                some = slice(rows.start, rows.stop)
                seen = low[some] < high[some]
                if not bool(seen.any()):
                    continue
                first = max(skip, int(low[some][seen].min()))
                last = int(high[some][seen].max())
            if first < last:
                yield Unit(batch, head, rows, (Span(range(first, last)),), low, high)


def _by_schedule(problem: Problem, mask: Mask, batch: int, skip: int) -> Iterator[Unit]:
    block = max(64, min(_rows(problem), PAIRS // problem.k_len))
    for row in schedule(mask, problem.q_len, problem.k_len, block, problem.offset):
        shared = _visits(problem, mask, row, skip) if mask.heads is None else None
        for head in range(problem.heads):
            spans = shared or _visits(problem, mask, row, skip, head)
            if spans:
                yield Unit(batch, head, row.queries, spans)


def _visits(problem: Problem, mask: Mask, row: Row, skip: int, head: int = 0) -> tuple[Span, ...]:
    found = []
    for run in sorted((*row.full, *row.partial), key=lambda run: run.start):
        keys = range(max(run.start, skip), run.stop)
        allowed = None
        if keys and run in row.partial:
            # The mask is that of one batch row.
            ids = (range(1), range(head, head + 1))
            place = Place(*ids, row.queries, keys, problem.offset, problem.q.device)
            allowed = place.allowed(mask)[0, 0].expand(len(row.queries), len(keys)).contiguous()
        if keys:
            found.append(Span(keys, allowed))
    return tuple(found)


def _rows(problem: Problem) -> int:
    each = -(-problem.batch * problem.heads * problem.q_len // PIECES)
    return min(ROWS, max(64, -(-each // 64) * 64))
