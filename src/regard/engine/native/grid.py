"""A grid: all heads of some batch rows as one piece, whose jobs are written as one table.

Making a job per head takes about 40 µs in Python. For maps with few queries, the kernel takes less than that.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from regard.engine.library import Job
from regard.engine.native.units import Unit, rows_of, spans_of, units
from regard.engine.problem import Problem
from regard.engine.schedule import KEY_TILE, chunks, small
from regard.engine.scoring import Place
from regard.masks import Mask
from regard.memo import remembered

__all__ = ["FIELDS", "WORD", "Grid", "JobTable", "Linear", "pieces"]

# The most numbers in the result buffers of one table's jobs.
ROOM = 1 << 23
# The most pairs whose mask is stored as one byte each.
PAIRS = 1 << 24
FIELDS = {field[0]: at for at, field in enumerate(Job._fields_)}
WORD = 8
RUN = 4 * WORD


class Linear:
    """A number that is linear in the batch row, the head and the key head: one term each, after the constant.

    >>> batch, head = Linear(0, 1), Linear(0, 0, 1)
    >>> (100 + batch * 10 + head // 2 * 4).terms
    (100, 10, 0, 4)
    """

    __slots__ = ("terms",)

    def __init__(self, constant: int, batch: int = 0, head: int = 0, kv_head: int = 0) -> None:
        self.terms = (constant, batch, head, kv_head)

    def __add__(self, other: Linear | int) -> Linear:
        a, b, c, d = self.terms
        if isinstance(other, int):
            return Linear(a + other, b, c, d)
        e, f, g, h = other.terms
        return Linear(a + e, b + f, c + g, d + h)

    __radd__ = __add__

    def __sub__(self, other: int) -> Linear:
        return self + -other

    def __mul__(self, factor: int) -> Linear:
        a, b, c, d = self.terms
        return Linear(a * factor, b * factor, c * factor, d * factor)

    def __floordiv__(self, group: int) -> Linear:
        """The key head of a head; the table stores the size of a group."""
        constant, batch, head, _ = self.terms
        return Linear(constant, batch, 0, head)


@dataclass(frozen=True, eq=False)
class Visible:
    """The keys that each head of a short map sees: a run of keys as the kernels read it, and intervals or a
    mask within it."""

    keys: range
    runs: Int64[Tensor, "#batch #heads 4"]
    low: Int64[Tensor, "#batch #heads q"] | None = None
    high: Int64[Tensor, "#batch #heads q"] | None = None
    allowed: Bool[Tensor, "#batch #heads q k"] | None = None
    # The heads that see anything; None if all do.
    seeing: Bool[Tensor, "#batch #heads"] | None = None


@dataclass(frozen=True)
class Grid:
    """All rows of all heads of some batch rows; has the attributes of a `Unit`."""

    problem: Problem
    rows_of_batch: range
    visible: Visible

    batch = Linear(0, 1)
    head = Linear(0, 0, 1)

    @property
    def rows(self) -> range:
        return range(self.problem.q_len)

    @property
    def keys(self) -> range:
        return self.visible.keys

    @property
    def lead(self) -> tuple[int, int]:
        return len(self.rows_of_batch), self.problem.heads

    def job(self, **fields: Any) -> JobTable:
        """Jobs with these fields, one for each batch row and head."""
        return JobTable(self, fields)

    def visit(self, job: JobTable) -> Any:
        """Set the pairs that the jobs cover; returns tensors that must live as long as the jobs."""
        seen = self.visible
        job.row_start, job.row_stop = 0, self.problem.q_len
        job.runs, job.n_runs = _address(seen.runs), 1
        if seen.low is not None and seen.high is not None:
            job.low, job.high = _address(seen.low), _address(seen.high)
        return seen

    def part_of(self, x: Tensor) -> Tensor:
        """The part of a (batch, heads, …) tensor that belongs to this piece; a view."""
        return x[self.rows_of_batch.start : self.rows_of_batch.stop]

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Linear]:
        """Allocate zeroed memory for each head; returns it and its address."""
        own = torch.zeros(*self.lead, *shape, dtype=dtype, device="cpu")
        by_batch, by_head = (own.stride(dim) * own.element_size() for dim in (0, 1))
        return own, Linear(own.data_ptr() - self.rows_of_batch.start * by_batch, by_batch, by_head)


class JobTable:
    """Jobs as a matrix of 64-bit words, one row per job; has the attributes of a `Job`."""

    def __init__(self, grid: Grid, fields: dict[str, Any]) -> None:
        self.__dict__.update(grid=grid, fields=fields)

    def __setattr__(self, name: str, value: Any) -> None:
        self.fields[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None

    def rows(self) -> Int64[Tensor, "jobs fields"]:
        """The jobs of all heads, seeing or not."""
        grid: Grid = self.grid
        return _heads(grid.rows_of_batch, grid.problem.heads, grid.problem.group) @ self._terms()

    def addresses(self) -> list[int]:
        """The address of each job; the jobs live as long as this table."""
        grid: Grid = self.grid
        table = self.__dict__["table"] = self.rows()
        first, size = table.data_ptr(), table.stride(0) * WORD
        found = list(range(first, first + size * len(table), size))
        seeing = grid.visible.seeing
        if seeing is None:
            return found
        if seeing.shape[0] > 1:
            seeing = grid.part_of(seeing)
        return [found[at] for at in seeing.expand(grid.lead).flatten().nonzero().flatten().tolist()]

    def _terms(self) -> Int64[Tensor, "terms fields"]:
        """The terms of every field; fields that are not given are 0."""
        # Build from an array of words; a list of lists would take ten times as long.
        words = array("q", bytes(4 * WORD * len(FIELDS)))
        for name, value in self.fields.items():
            at = FIELDS[name]
            if isinstance(value, Linear):
                words[at :: len(FIELDS)] = array("q", value.terms)
            else:
                words[at] = _bits(value) if isinstance(value, float) else value
        return torch.frombuffer(words, dtype=torch.int64).view(4, -1)


def pieces(problem: Problem, skip: int = 0, batch: range | None = None) -> Iterator[Unit | Grid]:
    """The pieces of a map without its first `skip` keys: grids if the map is short, else units.

    `batch` restricts them to some batch rows.
    """
    batch = range(problem.batch) if batch is None else batch
    each = problem.heads * (2 * (problem.q_len + problem.k_len) + 256)
    seen = _visible(problem, skip) if problem.q_len <= rows_of(problem) and each <= ROOM else None
    if seen is None:
        yield from units(problem, skip, batch=batch)
    elif seen.keys:
        for some in chunks(batch, max(1, ROOM // each)):
            yield Grid(problem, some, seen)


def _visible(problem: Problem, skip: int) -> Visible | None:
    """The keys that each head sees, or None if there are too many pairs to store."""
    mask, q, k = problem.mask, problem.q_len, problem.k_len
    if mask is None:
        return _all_visible(k, skip)
    spans = spans_of(mask, problem)
    if spans is not None:
        return spans.once(("visible", skip), lambda: _within(spans.low, spans.high, skip))
    cells = (mask.batch or 1) * (mask.heads or 1) * q * k
    return (
        _pair_by_pair(mask, problem.batch, problem.heads, q, k, problem.offset, skip)
        if (k <= KEY_TILE and cells <= PAIRS)
        else None
    )


@lru_cache(64)
def _all_visible(k: int, skip: int) -> Visible:
    return Visible(range(skip, k), torch.tensor([skip, k, 0, 0], device="cpu").view(1, 1, 4))


def _within(
    low: Int64[Tensor, "#batch #heads q"], high: Int64[Tensor, "#batch #heads q"], skip: int
) -> Visible:
    """Rows that see one interval of keys each."""
    blind = low >= high
    last = int(high.max())
    first = low.masked_fill(blind, last).amin(-1).clamp(min=skip)
    stop = high.masked_fill(blind, 0).amax(-1)
    zero = torch.zeros_like(first)
    keys = range(max(skip, int(first.min())), int(stop.max()))
    runs = torch.stack([first, stop, zero, zero], -1)
    return Visible(keys, runs, low, high, seeing=_unless_all(first < stop))


@remembered(8, lambda mask, batch, heads, q, *rest: small(mask, q))
def _pair_by_pair(mask: Mask, batch: int, heads: int, q: int, k: int, offset: int, skip: int) -> Visible:
    """Rows whose keys are given by a mask, pair by pair."""
    place = Place(range(batch), range(heads), range(q), range(skip, k), offset, torch.device("cpu"))
    allowed = place.allowed(mask)
    allowed = allowed.expand(*allowed.shape[:2], q, max(0, k - skip)).contiguous()
    runs = torch.empty(*allowed.shape[:2], 4, dtype=torch.int64, device="cpu")
    runs[:] = torch.tensor([skip, k, allowed.data_ptr(), allowed.stride(2)], device="cpu")
    step = q * max(0, k - skip)
    runs[..., 2] += torch.arange(len(runs) * runs.shape[1], device="cpu").view(runs.shape[:2]) * step
    return Visible(range(skip, k), runs, allowed=allowed, seeing=_unless_all(allowed.flatten(2).any(-1)))


def _unless_all(seeing: Bool[Tensor, "batch heads"]) -> Bool[Tensor, "batch heads"] | None:
    return None if bool(seeing.all()) else seeing


@lru_cache(16)
def _heads(batch: range, heads: int, group: int) -> Int64[Tensor, "jobs terms"]:
    """The batch row, head and key head of each job, after a column of ones."""
    row, head = (
        torch.tensor(batch, device="cpu").repeat_interleave(heads),
        torch.arange(heads, device="cpu").repeat(len(batch)),
    )
    return torch.stack([torch.ones_like(row), row, head, head // group], 1)


def _address(x: Tensor) -> Linear:
    """The address of each batch row and head of a (batch or 1, heads or 1, …) tensor."""
    size = x.element_size()
    by_batch, by_head = (x.stride(dim) * size if x.shape[dim] > 1 else 0 for dim in (0, 1))
    return Linear(x.data_ptr(), by_batch, by_head)


def _bits(x: float) -> int:
    """The bits of a double, as an integer."""
    return struct.unpack("<q", struct.pack("<d", x))[0]
