"""Launching the second pass for Hopper, in bands of queries so that what strips leave behind stays small."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.hopper.boxes import boxes, lines
from regard.engine.triton.hopper.gathering import (
    columns_kernel,
    diagonals_kernel,
    hits_kernel,
    marks_kernel,
    select_kernel,
)
from regard.engine.triton.hopper.survey_kernel import BY_WARP, hopper_survey_kernel
from regard.engine.triton.hopper.threads import THREADS, WARPS
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import SIDE, STRIP, intervals
from regard.engine.triton.starting import start
from regard.engine.triton.survey import Question, Survey, fill_top_keys, put_blocks

__all__ = ["can_survey", "survey"]

# Bytes for what a sweep needs beside what it finds; bands of queries are as large as that allows.
BAND_BYTES = 1 << 30
# How many candidates for its top keys a query has room for.
PLACES = 32
# Rows of which a warp scores the candidates, some of them at once; words of notes that a warp reads.
ROWS, AT_ONCE, WORDS = 8, 1, 64
# Programs enough for every multiprocessor to have several.
PROGRAMS = 1024


def can_survey(question: Question) -> bool:
    """Whether the sweep for Hopper answers a question."""
    strange = question.weights is not None or question.skip or question.borders
    return not strange and (question.pool & (question.pool - 1) == 0 or question.pool % SIDE == 0)


def survey(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    question: Question,
    tops: Float[Tensor, "batch heads q classes"] | None,
    room: Survey | None = None,
) -> Survey:
    """Sweep the map once; `tops` are the class maxima that bound each row's top keys from below.

    What has a place in `room` is added to what is there, and top keys are written.
    """
    sweep = _Sweep(problem, lse, question, tops, room or Survey())
    for first in range(0, sweep.q_blocks, sweep.band):
        sweep.run(range(first, min(first + sweep.band, sweep.q_blocks)))
    sweep.redo()
    return sweep.found


class _Sweep:
    """The cut of a sweep, and what has been found so far."""

    def __init__(
        self, problem: Problem, lse: Tensor, question: Question, tops: Tensor | None, room: Survey
    ) -> None:
        p, ask = problem, question
        self.problem, self.question, self.lse = p, ask, lse.contiguous()
        self.operands = Operands(replace(p, v=p.k))
        self.table = intervals(p)
        self.maps, self.device = (p.batch, p.heads), p.q.device
        self.q_blocks, self.k_blocks = -(-p.q_len // SIDE), -(-p.k_len // SIDE)
        self.pairs = self.k_blocks // 2 + 1
        pool = ask.pool if ask.pool_sums or ask.pool_maxima else SIDE
        # Larger blocks of the overview are put together afterwards: sums from what keys receive of a block of
        # queries, maxima from those of a warp.
        self.pool, self.part = pool, (min(pool, SIDE), min(pool, BY_WARP.value))
        self.from_columns = ask.pool_sums and pool % SIDE == 0
        self.receives = ask.columns or self.from_columns
        self.found = room
        if ask.columns and room.columns is None:
            room.columns = self._zeros(p.k_len)
        if ask.diagonals and room.diagonals is None:
            room.diagonals = self._zeros(p.q_len + p.k_len - 1)
        shape = (-(-p.q_len // pool), -(-p.k_len // pool))
        if ask.pool_sums and room.pool_sums is None:
            room.pool_sums = self._zeros(*shape)
        if ask.pool_maxima:
            room.pool_maxima = self._zeros(*shape)
        if ask.top and tops is not None:
            if room.weight is None or room.key is None:
                room.weight = self._empty(p.q_len, ask.top)
                room.key = self._empty(p.q_len, ask.top, dtype=torch.int64)
            self.again = self._zeros(self.q_blocks, dtype=torch.int32)
        self.mark, self.factor = self._marks(tops if ask.top else None)
        self.band = self._band(0 if tops is None else 4 * tops.numel())

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(*self.maps, *shape, dtype=dtype, device=self.device)

    def _empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*self.maps, *shape, dtype=dtype, device=self.device)

    def _marks(self, tops: Tensor | None) -> tuple[Tensor, Tensor]:
        """What is taken from scores to make weights of them, up to a factor: from there on they may be of
        top keys."""
        mark = self._empty(self.q_blocks * SIDE).flatten(0, 1)
        factor = mark if tops is None else torch.empty_like(mark)
        start(
            marks_kernel,
            (self.q_blocks, self.problem.batch * self.problem.heads),
            self.lse,
            self.lse if tops is None else tops,
            mark,
            factor,
            mark if tops is None else self.again,
            self.operands.scale,
            self.problem.q_len,
            K=self.question.top,
            CLASSES=1 if tops is None else tops.shape[-1],
            SIDE=SIDE,
        )
        return mark, factor

    def _band(self, taken: int) -> int:
        """How many blocks of queries to sweep at once: few enough to fit, and to keep the device busy."""
        ask, maps = self.question, self.problem.batch * self.problem.heads
        parts = SIDE // self.part[0] * (SIDE // self.part[1])
        cells = parts * (ask.pool_maxima + (ask.pool_sums and not self.from_columns))
        bytes_per_block = 4 * self.k_blocks * (cells + (SIDE + 1) * self.receives)
        if ask.top:
            bytes_per_block += (8 * THREADS.value + 4 * WARPS.value) * self.pairs + 4 * SIDE * (PLACES + 1)
        strips = -(-self.k_blocks // STRIP) * maps
        room = BAND_BYTES - taken - 4 * STRIP * SIDE * SIDE * strips * ask.diagonals
        fits = room // max(1, bytes_per_block * maps)
        busy = self.q_blocks * strips // PROGRAMS if strips < PROGRAMS else self.q_blocks
        return max(1, min(fits, max(busy, 32), self.q_blocks))

    def run(self, band: range) -> None:
        """One band of query blocks, and what it says added to the rest."""
        p, ask, none = self.problem, self.question, self.lse
        strips = self.table.strips(band)
        row_stop = min(p.q_len, band.stop * SIDE)
        rows, slots = row_stop - band.start * SIDE, len(band)
        column = self._empty(slots, self.k_blocks * SIDE) if self.receives else none
        cells = self._empty(strips.count, STRIP // 2, SIDE, 2 * SIDE) if ask.diagonals else none
        pooled = (slots * SIDE // self.part[0], self.k_blocks * SIDE // self.part[1])
        # Blocks that are not visited leave nothing behind; without a mask there are none.
        place = self._empty if p.mask is None else self._zeros
        direct = ask.pool_sums and not self.from_columns
        sums, maxima = (place(*pooled) if wanted else none for wanted in (direct, ask.pool_maxima))
        warps = threads = none
        if ask.top:
            warps = self._zeros(slots, self.pairs, WARPS.value, dtype=torch.int32)
            threads = self._empty(slots, self.pairs, THREADS.value, dtype=torch.int64)
        start(
            hopper_survey_kernel,
            (p.batch * p.heads, strips.count),
            boxes(self.operands.q, SIDE),
            boxes(self.operands.k, SIDE),
            lines(self.mark, SIDE),
            lines(self.factor, SIDE),
            self.table.low,
            self.table.high,
            self.table.edges,
            strips.table,
            column,
            cells,
            sums,
            maxima,
            warps,
            threads,
            *self.table.strides,
            self.operands.scale,
            p.q_len,
            p.heads,
            p.group,
            strips.count,
            strips.table.stride(0) if self.table.planes > 1 else 0,
            self.table.edges.stride(0) if self.table.planes > 1 else 0,
            band.start,
            row_stop,
            slots,
            self.k_blocks,
            *pooled,
            DIM=p.q.shape[-1],
            COLUMNS=self.receives,
            TOP=ask.top > 0,
            DIAGONALS=ask.diagonals,
            SUMS=direct,
            MAXIMA=ask.pool_maxima,
            POOL_Q=self.part[0],
            POOL_K=self.part[1],
            num_warps=WARPS.value,
        )
        if self.receives:
            self._add_columns(column, band)
        if self.found.diagonals is not None:
            self._add_diagonals(self.found.diagonals, cells, band)
        if self.found.pool_sums is not None and direct:
            self._put(self.found.pool_sums, sums, self.part, band, largest=False)
        if self.found.pool_maxima is not None:
            self._put(self.found.pool_maxima, maxima, self.part, band, largest=True)
        if ask.top:
            self._select(warps, threads, band, rows)

    def _add_columns(self, column: Tensor, band: range) -> None:
        """What keys received from blocks of queries: over all of them, and over blocks of keys."""
        total, seen = self.found.columns, self.table.seen
        blocks = self._empty(len(band), self.k_blocks) if self.from_columns else column
        start(
            columns_kernel,
            (self.k_blocks, self.problem.batch * self.problem.heads),
            column,
            seen,
            column if total is None else total,
            blocks,
            self.problem.heads,
            seen.shape[1] if self.table.planes > 1 else 0,
            band.start,
            len(band),
            self.k_blocks,
            self.problem.k_len,
            COLUMNS=total is not None,
            BLOCKS=self.from_columns,
            SIDE=SIDE,
        )
        if self.found.pool_sums is not None and self.from_columns:
            self._put(self.found.pool_sums, blocks, (SIDE, SIDE), band, largest=False)

    def _add_diagonals(self, total: Tensor, cells: Tensor, band: range) -> None:
        strips = self.table.strips(band)
        pairs = strips.pairs.shape[1]
        start(
            diagonals_kernel,
            (2 * (pairs + 1), self.problem.batch * self.problem.heads),
            cells,
            strips.pairs,
            total,
            self.problem.heads,
            strips.count * (STRIP // 2),
            pairs if self.table.planes > 1 else 0,
            strips.first,
            pairs,
            self.problem.q_len,
            total.shape[-1],
            SIDE=SIDE,
        )

    def _put(self, total: Tensor, part: Tensor, size: tuple[int, int], band: range, *, largest: bool) -> None:
        """The band's part of the overview, whose blocks are put together from parts of a size."""
        parts = (self.pool // size[0], self.pool // size[1])
        put_blocks(total, part, parts, band.start * SIDE // size[0], largest=largest)

    def _select(self, warps: Tensor, threads: Tensor, band: range, rows: int) -> None:
        """The heaviest of the keys that were noted on the way."""
        p, maps, words = self.problem, self.problem.batch * self.problem.heads, warps[0, 0].numel()
        length = self._zeros(len(band) * SIDE, dtype=torch.int32)
        lists = self._empty(len(band) * SIDE, PLACES, dtype=torch.int32)
        start(
            hits_kernel,
            (maps * -(-words // WORDS),),
            warps,
            threads,
            length,
            lists,
            maps,
            words,
            self.pairs,
            len(band) * SIDE,
            band.start,
            PLACES=PLACES,
            SIDE=SIDE,
            WORDS=WORDS,
            num_warps=1,
        )
        start(
            select_kernel,
            (-(-rows // ROWS), maps),
            **self.operands.plain,
            LSE=self.lse,
            LENGTH=length,
            LIST=lists,
            WEIGHT=self.found.weight,
            KEY=self.found.key,
            REDO=self.again,
            scale=self.operands.scale,
            band_rows=rows,
            list_rows=len(band) * SIDE,
            q_len=p.q_len,
            first_row=band.start * SIDE,
            redo_blocks=self.q_blocks,
            heads=p.heads,
            group=p.group,
            TOP=self.question.top,
            DIM=p.q.shape[-1],
            PLACES=PLACES,
            ROWS=ROWS,
            SIDE=SIDE,
            AT_ONCE=AT_ONCE,
            num_warps=1,
        )

    def redo(self) -> None:
        """Rows whose candidates did not fit their places are searched one by one."""
        weight, key = self.found.weight, self.found.key
        if weight is not None and key is not None:
            fill_top_keys(self.problem, self.lse, weight, key, self.again)
