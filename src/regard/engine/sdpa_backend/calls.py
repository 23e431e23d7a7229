"""Splits a problem into calls of PyTorch's fused kernel: each block of queries with only the keys it can
see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.engine.parts import RAGGED
from regard.engine.problem import Problem
from regard.engine.schedule import Row, chunks, schedule
from regard.engine.scoring import Place
from regard.engine.sdpa_backend.support import is_plain
from regard.masks import Dense, Mask
from regard.masks.settled import settled
from regard.memo import remembered

__all__ = ["KEPT_CELLS", "SHORT", "Call", "calls_of", "in_one_call", "is_kept", "whole_mask"]

BLOCK = 256
# From this ratio of full to partial keys on, two calls and a merge are faster than one masked call.
SPLIT = 4
# Up to this length, a masked text is one call with the whole mask; masks of up to this many cells are cached.
SHORT, KEPT_CELLS = 256, 1 << 18
# Up to this many pairs, and heads times pairs, a mask without intervals is evaluated whole and once: its
# tiles cost more to classify than they save. Those of up to KEPT_PAIRS are cached, one byte each.
PAIRS, CELLS, KEPT_PAIRS = 1 << 21, 1 << 24, 1 << 21
# Of larger ones, with a matrix for each head, fewer are cached.
KEPT_LARGE = 1 << 23
# Additive masks of up to so many cells, heads times pairs, are cached: 4 MiB each in float32.
KEPT_TILES = 1 << 20


@dataclass(frozen=True)
class Call:
    """One fused call: some batch rows, a block of queries, the keys it sees, and an additive mask."""

    batch: range
    queries: range
    runs: tuple[range, ...]
    causal: bool
    mask: Float[Tensor, "#batch #heads q k"] | None
    dead: Bool[Tensor, "#batch #heads q"] | None

    def rows(self, x: Tensor) -> Tensor:
        return x[self.batch.start : self.batch.stop, :, self.queries.start : self.queries.stop]

    def keys(self, x: Tensor) -> Tensor:
        """The visible keys, a view when they are contiguous."""
        x = x[self.batch.start : self.batch.stop]
        first, last = self.runs[0].start, self.runs[-1].stop
        if last - first == sum(map(len, self.runs)):
            return x[:, :, first:last]
        return torch.cat([x[:, :, run.start : run.stop] for run in self.runs], 2)

    def add_keys(self, total: Tensor, x: Tensor) -> None:
        """Add gradients of the gathered keys to the original keys."""
        start = 0
        for run in self.runs:
            total[self.batch.start : self.batch.stop, :, run.start : run.stop] += x[
                :, :, start : start + len(run)
            ]
            start += len(run)


def in_one_call(problem: Problem) -> bool:
    """Whether one call computes the whole problem: it has no mask, or is short."""
    short = max(problem.q_len, problem.k_len) <= SHORT and problem.scoring.bias is None
    return is_plain(problem) or short


def calls_of(problem: Problem) -> Iterator[list[Call]]:
    """For each block of queries, the calls whose results are merged; empty if the block sees nothing."""
    batch = range(problem.batch)
    if is_plain(problem):
        causal = problem.mask is not None
        yield [Call(batch, range(problem.q_len), (range(problem.k_len),), causal, None, None)]
        return
    mask = problem.mask
    if mask is not None and in_one_call(problem):
        shape = (problem.batch, problem.heads, problem.q_len, problem.k_len)
        whole = whole_mask(mask, shape, problem.offset, problem.accumulate)
        yield [Call(batch, range(problem.q_len), (range(problem.k_len),), False, *whole)]
        return
    ragged = mask is not None and (mask.batch or 1) > 1 and problem.k_len > RAGGED
    if mask is not None and not ragged:
        mask = _evaluated(mask, problem)
    for rows in chunks(batch, 1 if ragged else len(batch)):
        own = mask.select(rows.start) if ragged and mask is not None else mask
        builder = _MaskBuilder(problem, own, rows)
        for row in schedule(own, problem.q_len, problem.k_len, BLOCK, problem.offset):
            yield [Call(rows, row.queries, runs, False, *builder.build(row, runs)) for runs in _groups(row)]


def is_kept(mask: Mask, shape: tuple[int, int, int, int], *_: object) -> bool:
    """Whether to cache a whole mask: it must not belong to one batch only, nor have many heads."""
    return mask.batch is None and (mask.heads or 1) * shape[2] * shape[3] <= KEPT_CELLS


@remembered(32, is_kept)
def whole_mask(
    mask: Mask, shape: tuple[int, int, int, int], offset: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """(additive mask, dead rows or None) of a short text, for one call with all its queries.

    Computing a schedule would take longer than computing the masked pairs.
    """
    batch, heads, q_len, k_len = shape
    place = Place(range(batch), range(heads), range(q_len), range(k_len), offset, torch.device("cpu"))
    hidden = ~place.allowed(mask)
    additive = torch.zeros((1, 1, q_len, k_len), dtype=dtype, device="cpu").masked_fill(hidden, -torch.inf)
    dead = (additive == -torch.inf).all(-1)
    return additive, dead if bool(dead.any()) else None


def _evaluated(mask: Mask, problem: Problem) -> Mask:
    """The mask as a matrix if it has no intervals and the text is short enough, else the mask itself."""
    q, k = problem.q_len, problem.k_len
    cells = q * k * (mask.batch or 1) * (mask.heads or 1)
    if (
        q * k > PAIRS
        or cells > CELLS
        or isinstance(mask, Dense)
        or mask.spans(torch.arange(1, device="cpu")) is not None
    ):
        return mask
    given = (problem.batch, problem.heads, q, k, problem.offset)
    known = settled(mask) if mask.batch is None and cells <= KEPT_LARGE else None
    if known is not None:
        return (_kept_matrix if cells <= KEPT_PAIRS else _kept_large_matrix)(known, *given)
    return _Evaluated(_allowed(mask, *given))


class _Evaluated(Dense):
    """A mask matrix for one call. It is compared by identity, so that caches don't search for an equal one:
    comparing matrices would take longer than evaluating them."""


@remembered(16)
def _kept_matrix(mask: Mask, batch: int, heads: int, q: int, k: int, offset: int) -> Dense:
    return Dense(_allowed(mask, batch, heads, q, k, offset))


@remembered(4)
def _kept_large_matrix(mask: Mask, batch: int, heads: int, q: int, k: int, offset: int) -> Dense:
    return Dense(_allowed(mask, batch, heads, q, k, offset))


def _allowed(
    mask: Mask, batch: int, heads: int, q: int, k: int, offset: int
) -> Bool[Tensor, "#batch #heads q k"]:
    place = Place(range(batch), range(heads), range(q), range(k), offset, torch.device("cpu"))
    return place.allowed(mask).expand(-1, -1, q, k)


def _groups(row: Row) -> list[tuple[range, ...]]:
    runs = tuple(sorted(row.full + row.partial, key=lambda run: run.start))
    full = sum(map(len, row.full))
    if row.partial and full >= SPLIT * (row.keys - full):
        return [row.full, row.partial]
    return [runs] if runs else []


Tiles = dict[Any, tuple[Tensor, Tensor | None]]


def _tiles_of(problem: Problem, mask: Mask | None) -> Tiles | None:
    """The cache for the additive masks of a call; if the mask is a value and they are few, it outlives the
    call."""
    q, k = problem.q_len, problem.k_len
    if mask is None or mask.batch is not None or (mask.heads or 1) * q * k > KEPT_TILES:
        return None
    return _kept_tiles(mask, problem.heads, q, k, problem.offset, problem.accumulate)


@remembered(8)
def _kept_tiles(mask: Mask, heads: int, q: int, k: int, offset: int, dtype: torch.dtype) -> Tiles:
    return {}


class _MaskBuilder:
    """Builds additive masks for the calls of one schedule; equal tiles are built once."""

    def __init__(self, problem: Problem, mask: Mask | None, batch: range) -> None:
        self.problem, self.mask, self.batch = problem, mask, batch
        kept = _tiles_of(problem, mask)
        self.keeps = kept is not None or (mask is not None and mask.relative)
        self.seen: Tiles = {} if kept is None else kept

    def build(self, row: Row, runs: tuple[range, ...]) -> tuple[Tensor | None, Tensor | None]:
        """(additive mask or None, dead rows or None)."""
        bias = self.problem.scoring.bias
        masked = any(run in row.partial for run in runs)
        if bias is None and not masked:
            return None, None
        if bias is not None or self.mask is None or not self.keeps:
            return self._fresh(row, runs)
        key = (
            None if self.mask.relative else row.queries.start,
            len(row.queries),
            tuple((run.start - row.queries.start, len(run), run in row.full) for run in runs),
        )
        if key not in self.seen:
            self.seen[key] = self._fresh(row, runs)
        return self.seen[key]

    def _fresh(self, row: Row, runs: tuple[range, ...]) -> tuple[Tensor, Tensor | None]:
        tiles = [self._tile(row, run) for run in runs]
        shape = torch.broadcast_shapes(*(tile.shape[:3] for tile in tiles))
        mask = tiles[0] if len(tiles) == 1 else torch.cat([tile.expand(*shape, -1) for tile in tiles], -1)
        # The kernel returns lse 0 for a dead row; ours is -inf.
        sees_some = self.problem.scoring.bias is None and any(run in row.full for run in runs)
        dead = None if sees_some else mask.amax(-1) == -torch.inf
        return mask, dead if dead is not None and bool(dead.any()) else None

    def _tile(self, row: Row, run: range) -> Float[Tensor, "#batch #heads q k"]:
        p = self.problem
        place = Place(self.batch, range(p.heads), row.queries, run, p.offset, p.q.device)
        bias = p.scoring.bias_tile(place)
        if run in row.partial and self.mask is not None:
            # A new tensor either way, because the kernel needs a mask with the full shape.
            allowed = place.allowed(self.mask).expand(-1, -1, len(row.queries), len(run))
            seen = (
                torch.zeros((), dtype=p.accumulate, device=p.q.device)
                if bias is None
                else bias.to(p.accumulate)
            )
            return torch.where(allowed, seen, -torch.inf)
        tile = torch.zeros((1, 1, len(row.queries), len(run)), dtype=p.accumulate, device=p.q.device)
        if bias is not None:
            tile = tile + bias
        return tile
