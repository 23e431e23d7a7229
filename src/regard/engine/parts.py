"""The tile loop that forward and backward share: slices of the problem, their order, and buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.engine.gemm import bmm
from regard.engine.problem import Problem
from regard.engine.schedule import Row, chunks, schedule
from regard.engine.scoring import Place
from regard.masks import Mask

__all__ = ["Part", "Tile", "parts"]

# A tile of 1024 rows x 1024 keys in float32 is 4 MiB: it stays in the cache between the two products.
ROWS, KEYS = 1024, 1024
# Ragged batches (one mask per batch row) are scheduled row by row from this many keys on.
RAGGED = 1024
CUDA_TILE_ELEMENTS = 1 << 26
BLOCKED_BYTES = 1 << 26


@dataclass(frozen=True)
class Tile:
    """One visited tile of a part."""

    rows: range
    keys: range
    place: Place
    blocked: Bool[Tensor, "#batch #heads q k"] | None


class Blocked:
    """Masks of partial tiles, reused for all heads, and for relative masks also for other blocks."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.room = BLOCKED_BYTES
        self.seen: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, place: Place, rows: range, keys: range) -> Bool[Tensor, "#batch #heads q k"]:
        if self.mask.batch is not None or self.mask.heads is not None:
            return ~place.allowed(self.mask)
        key = (rows.start - keys.start, len(rows), len(keys))
        if not self.mask.relative:
            key = (rows.start, *key)
        blocked = self.seen.get(key)
        if blocked is None:
            blocked = ~place.allowed(self.mask)
            self.room -= blocked.numel()
            if self.room > 0:
                self.seen[key] = blocked
        return blocked


@dataclass(frozen=True)
class Part:
    """Some batch rows and key heads of a problem, computed together as 3-d stacks of matrices."""

    problem: Problem
    batch: range
    kv_heads: range
    mask: Mask | None
    blocked: Blocked | None
    block: int
    step: int

    @property
    def heads(self) -> range:
        """The query heads of these key heads."""
        return range(self.kv_heads.start * self.problem.group, self.kv_heads.stop * self.problem.group)

    @property
    def stacks(self) -> int:
        return len(self.batch) * len(self.kv_heads)

    def keys(self, x: Tensor) -> Tensor:
        """(batch, kv_heads, k, d) → (stacks, k, d) in the accumulating dtype."""
        return self.box(x).flatten(0, 1).to(self.problem.accumulate)

    def box(self, x: Tensor) -> Tensor:
        """This part of a (batch, kv_heads, …) tensor, as a view."""
        return x[self.batch.start : self.batch.stop, self.kv_heads.start : self.kv_heads.stop]

    def queries(self, x: Tensor, rows: range) -> Tensor:
        """(batch, heads, q, d) → (stacks, group * rows, d) in the accumulating dtype."""
        x = x[self.batch.start : self.batch.stop, self.heads.start : self.heads.stop, rows.start : rows.stop]
        shape = (self.stacks, self.problem.group * len(rows), x.shape[-1])
        return x.reshape(shape).to(self.problem.accumulate)

    def put(self, x: Tensor, rows: range, value: Tensor) -> None:
        """Write (stacks, group * rows, …) back into (batch, heads, q, …)."""
        target = x[
            self.batch.start : self.batch.stop, self.heads.start : self.heads.stop, rows.start : rows.stop
        ]
        target.copy_(value.view(target.shape))

    def rows(self) -> Iterator[Row]:
        p = self.problem
        return schedule(self.mask, p.q_len, p.k_len, self.block, p.offset)

    def tiles(self, row: Row) -> Iterator[Tile]:
        """Full runs first: they settle the running maximum of every row early."""
        for partial, runs in ((False, row.full), (True, row.partial)):
            for run in runs:
                for keys in chunks(run, self.step):
                    place = self.place(row.queries, keys)
                    blocked = None
                    if partial and self.blocked is not None:
                        blocked = self.blocked(place, row.queries, keys)
                    yield Tile(row.queries, keys, place, blocked)

    def place(self, rows: range, keys: range) -> Place:
        p = self.problem
        return Place(self.batch, self.heads, rows, keys, p.offset, p.q.device)

    def four(self, s: Tensor) -> Tensor:
        """View a (stacks, group * rows, keys) tile as (batch, heads, q, k)."""
        return s.view(len(self.batch), len(self.heads), -1, s.shape[-1])

    def scores(self, q: Tensor, k: Tensor, tile: Tile, buffer: Tensor | None = None) -> Tensor:
        """The scores of a tile, masked, as (stacks, group * rows, keys); q is already scaled."""
        scoring = self.problem.scoring
        if scoring.score.is_dot:
            shape = (self.stacks, q.shape[1], len(tile.keys))
            out = None if buffer is None else buffer[: shape[0] * shape[1] * shape[2]].view(shape)
            s = bmm(q, k.transpose(1, 2), out)
        else:
            s = scoring.raw(q, k, tuple(x.to(q.dtype) for x in scoring.score.parameters()))
        if not scoring.linear:
            four = scoring.modify(self.four(s), scoring.bias_tile(tile.place), tile.place)
            s = four.to(s.dtype).reshape(s.shape)
        if tile.blocked is not None:
            self.four(s).masked_fill_(tile.blocked, -torch.inf)
        return s

    def scaled(self, q: Tensor) -> Tensor:
        """Fold the scale of a dot product into the queries, once per block."""
        scoring = self.problem.scoring
        return q * scoring.scale if scoring.score.is_dot else q

    def buffer(self) -> Tensor:
        rows = self.problem.group * self.block
        size = self.stacks * rows * min(self.step, max(1, self.problem.k_len))
        return torch.empty(size, dtype=self.problem.accumulate, device=self.problem.q.device)


def parts(problem: Problem, all_heads: bool = False, keys: int = KEYS) -> Iterator[Part]:
    """Cut a problem so that a tile of each part fits the cache (CPU) or a fixed budget (GPU).

    With `all_heads`, every tile has all heads of a batch row, and fewer rows instead.
    """
    group, kv_heads = problem.group, problem.k.shape[1]
    # Under a mask, the ends of the visible keys are ragged; half as many rows waste half as much work.
    rows = ROWS if problem.mask is None else ROWS // 2
    block = max(16, rows // (problem.heads if all_heads else group))
    step = keys if problem.scoring.score.is_dot else keys // 4
    tile = group * min(block, max(1, problem.q_len)) * min(step, max(1, problem.k_len))
    budget = CUDA_TILE_ELEMENTS if problem.q.is_cuda else ROWS * KEYS
    stacks = max(1, budget // tile, kv_heads if all_heads else 1)
    ragged = problem.mask is not None and (problem.mask.batch or 1) > 1 and problem.k_len > RAGGED
    at_once = 1 if ragged else max(1, stacks // kv_heads)
    mask = problem.mask
    blocked = None if mask is None else Blocked(mask)
    for batch in chunks(range(problem.batch), at_once):
        if ragged and problem.mask is not None:
            mask = problem.mask.select(batch.start)
            blocked = Blocked(mask)
        for heads in chunks(range(kv_heads), min(kv_heads, stacks)):
            yield Part(problem, batch, heads, mask, blocked, block, step)
