"""Units: the pieces in which a map is read, some rows of one head and the keys that they can see.

The pieces depend only on shapes and mask, so results don't depend on the number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64
from torch import Tensor

from regard.engine.library import Job, Run
from regard.engine.problem import Problem
from regard.engine.schedule import Row, chunks, schedule, small
from regard.engine.scoring import Place
from regard.masks import Mask
from regard.memo import Keeper, remembered

__all__ = ["Intervals", "Span", "Unit", "rows_of", "scheduled_units", "spans_of", "units"]

# The most rows of a piece; its sums over columns and diagonals are added to the totals once per piece.
ROWS = 512
# The least number of pieces, if there are enough rows; with fewer, threads would be idle.
PIECES = 8
# The most pairs of a piece whose mask is materialised, one byte each.
PAIRS = 1 << 24


@dataclass(frozen=True)
class Span:
    """Adjacent keys, and the mask of their pairs unless all are allowed."""

    keys: range
    allowed: Bool[Tensor, "q keys"] | None = None


@dataclass(frozen=True)
class Unit:
    """Some rows of one head and the keys they visit, in rising order; `low` and `high` restrict single rows
    further."""

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

    def job(self, **fields: Any) -> Job:
        """A job with these fields."""
        return Job(**fields)

    def visit(self, job: Job) -> Any:
        """Set the pairs that a job covers; returns tensors that must live as long as the job."""
        runs = (Run * len(self.spans))(*map(_run, self.spans))
        job.runs, job.n_runs = ctypes.addressof(runs), len(self.spans)
        job.row_start, job.row_stop = self.rows.start, self.rows.stop
        if self.low is not None and self.high is not None:
            job.low, job.high = self.low.data_ptr(), self.high.data_ptr()
        return self, runs

    def part_of(self, x: Tensor) -> Tensor:
        """The part of a (batch, heads, …) tensor that belongs to this piece; a view."""
        return x[self.batch, self.head]

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, int]:
        """Allocate zeroed memory; returns it and its address."""
        own = torch.zeros(*shape, dtype=dtype, device="cpu")
        return own, own.data_ptr()


def _run(span: Span) -> Run:
    if span.allowed is None:
        return Run(span.keys.start, span.keys.stop, None, 0)
    return Run(span.keys.start, span.keys.stop, span.allowed.data_ptr(), span.allowed.stride(0))


@dataclass(frozen=True, eq=False)
class Intervals(Keeper):
    """The keys that each query may see, low … high - 1, and other facts derived from the mask."""

    low: Int64[Tensor, "#batch #heads q"]
    high: Int64[Tensor, "#batch #heads q"]

    def edges(self, rows: int) -> list[Any]:
        """The keys that each block of `rows` queries of the first batch row sees, by head and block."""
        return self.once(("edges", rows), lambda: _edges(self.low[0], self.high[0], rows))


def units(
    problem: Problem, skip: int = 0, rows: int | None = None, batch: range | None = None
) -> Iterator[Unit]:
    """The pieces of a map without its first `skip` keys, in a fixed order: by batch row, by rows, by head.

    A piece has at most `rows` rows, by default chosen for the problem. Pieces that see nothing are left out.
    `batch` restricts them to some batch rows.
    """
    rows = rows_of(problem) if rows is None else rows
    mask = problem.mask
    several = mask is not None and (mask.batch or 1) > 1
    for at in range(problem.batch) if batch is None else batch:
        own = mask.select(at) if several and mask is not None else mask
        spans = spans_of(own, problem)
        if spans is None and own is not None:
            yield from scheduled_units(problem, own, skip, at, rows)
        else:
            yield from _by_spans(problem, spans, at, skip, rows)


def spans_of(mask: Mask | None, problem: Problem) -> Intervals | None:
    """The keys that each query may see, as one interval; None if they are not one."""
    if mask is None:
        return None
    return _spans(mask, problem.q_len, problem.k_len, problem.offset)


@remembered(8, small)
def _spans(mask: Mask, q_len: int, k_len: int, offset: int) -> Intervals | None:
    spans = mask.spans(torch.arange(q_len, device="cpu") + offset)
    if spans is None:
        return None
    low, high = (edge.clamp(0, k_len) for edge in torch.broadcast_tensors(*spans))
    lead = (1,) * (3 - low.ndim)
    return Intervals(*(edge.reshape(*lead, *edge.shape).contiguous() for edge in (low, high)))


def _by_spans(problem: Problem, spans: Intervals | None, batch: int, skip: int, rows: int) -> Iterator[Unit]:
    edges = None if spans is None else spans.edges(rows)
    for at, block in enumerate(chunks(range(problem.q_len), rows)):
        for head in range(problem.heads):
            if spans is None or edges is None:
                first, last, confined = 0, problem.k_len, ()
            else:
                own = head if spans.low.shape[1] > 1 else 0
                first, last = edges[own][at]
                confined = (spans.low[0, own], spans.high[0, own])
            keys = range(max(skip, first), last)
            if keys:
                yield Unit(batch, head, block, (Span(keys),), *confined)


def _edges(low: Int64[Tensor, "heads q"], high: Int64[Tensor, "heads q"], rows: int) -> list[Any]:
    """The first key that each block of rows sees, and the stop; an empty range if it sees none."""
    last = int(high.max()) if high.numel() else 0
    blind = low >= high
    pad = (0, -low.shape[-1] % rows)
    low = F.pad(low.masked_fill(blind, last), pad, value=last).unflatten(-1, (-1, rows)).amin(-1)
    high = F.pad(high.masked_fill(blind, 0), pad, value=0).unflatten(-1, (-1, rows)).amax(-1)
    return torch.stack([low, high], -1).tolist()


def scheduled_units(
    problem: Problem, mask: Mask, skip: int = 0, batch: int = 0, rows: int | None = None
) -> Iterator[Unit]:
    """The pieces of one batch row whose `mask` has no intervals; their pairs are masked one by one."""
    rows = rows_of(problem) if rows is None else rows
    block = max(64, min(rows, PAIRS // problem.k_len))
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


def rows_of(problem: Problem) -> int:
    """The most rows of a piece, chosen for a problem."""
    each = -(-problem.batch * problem.heads * problem.q_len // PIECES)
    return min(ROWS, max(64, -(-each // 64) * 64))
