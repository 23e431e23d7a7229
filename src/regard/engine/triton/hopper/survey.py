"""Launching the second pass for Hopper, in bands of queries so that what strips leave behind stays small."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.problem import Problem
from regard.engine.triton.hopper.boxes import boxes
from regard.engine.triton.hopper.gathering import diagonals_kernel, select_kernel, threshold_kernel
from regard.engine.triton.hopper.survey_kernel import hopper_survey_kernel
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import SIDE, STRIP, intervals
from regard.engine.triton.survey import Question, Survey, fill_top_keys

__all__ = ["can_survey", "survey"]

# How many candidates a row may have, and how many keys one is: those that lie in one thread.
PLACES, GROUP = 32, 16
# Bytes for what a band of queries leaves behind.
BAND_BYTES = 1 << 29
ROWS, WARPS = 16, 4
# Programs enough for every multiprocessor to have several.
PROGRAMS = 1024


def can_survey(question: Question) -> bool:
    """Whether the sweep for Hopper answers a question; sums over keys alone are quicker key by key."""
    strange = question.weights is not None or question.skip or question.borders
    small = question.pool & (question.pool - 1) == 0 or question.pool % SIDE == 0
    wanted = question.diagonals or question.top or question.pool
    return bool(wanted) and not strange and small


def survey(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    question: Question,
    tops: Float[Tensor, "batch heads q classes"] | None,
) -> Survey:
    """Sweep the map once; `tops` are the class maxima that bound each row's top keys from below."""
    sweep = _Sweep(problem, lse, question, tops)
    for first in range(0, sweep.q_blocks, sweep.band):
        sweep.run(range(first, min(first + sweep.band, sweep.q_blocks)))
    sweep.redo()
    return sweep.found


class _Sweep:
    """The cut of a sweep, and what has been found so far."""

    def __init__(self, problem: Problem, lse: Tensor, question: Question, tops: Tensor | None) -> None:
        p, ask = problem, question
        self.problem, self.question, self.lse = p, ask, lse.contiguous()
        self.operands = Operands(replace(p, v=p.k))
        self.table = intervals(p)
        self.maps, self.device = (p.batch, p.heads), p.q.device
        self.q_blocks, self.k_blocks = -(-p.q_len // SIDE), -(-p.k_len // SIDE)
        pool = ask.pool if ask.pool_sums or ask.pool_maxima else SIDE
        # Warps hold sixteen queries: larger blocks of the overview are put together afterwards.
        self.pool, self.part = pool, (min(pool, 16), min(pool, SIDE))
        self.tau = self.lse
        self.found = Survey()
        if ask.columns:
            self.found.columns = self._zeros(p.k_len)
        if ask.diagonals:
            self.found.diagonals = self._zeros(p.q_len + p.k_len - 1)
        shape = (-(-p.q_len // pool), -(-p.k_len // pool))
        if ask.pool_sums:
            self.found.pool_sums = self._empty(*shape)
        if ask.pool_maxima:
            self.found.pool_maxima = self._empty(*shape)
        if ask.top and tops is not None:
            self.found.weight = self._empty(p.q_len, ask.top)
            self.found.key = self._empty(p.q_len, ask.top, dtype=torch.int64)
            self.again = self._zeros(self.q_blocks, dtype=torch.int32)
            self.tau = self._thresholds(tops)
        self.band = self._band()

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(*self.maps, *shape, dtype=dtype, device=self.device)

    def _empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*self.maps, *shape, dtype=dtype, device=self.device)

    def _thresholds(self, tops: Tensor) -> Tensor:
        tau, rows = torch.empty_like(self.lse), self.lse.numel()
        threshold_kernel[(-(-rows // 64),)](
            tops, tau, rows, K=self.question.top, CLASSES=tops.shape[-1], ROWS=64
        )
        return tau

    def _band(self) -> int:
        """How many blocks of queries to sweep at once: few enough to fit, and to keep the device busy."""
        ask, maps = self.question, self.problem.batch * self.problem.heads
        cells = SIDE // self.part[0] * (SIDE // self.part[1]) * (ask.pool_sums + ask.pool_maxima)
        bytes_per_block = 4 * self.k_blocks * (cells + SIDE // 2 * ask.columns)
        if ask.top:
            bytes_per_block += 4 * SIDE * PLACES * (GROUP + 1)
        fits = BAND_BYTES // max(1, bytes_per_block * maps)
        strips = self.k_blocks // STRIP * maps
        busy = self.q_blocks * strips // PROGRAMS if strips < PROGRAMS else self.q_blocks
        # Blocks of the overview lie in one band.
        step = max(1, self.pool // SIDE)
        return max(step, min(fits, max(busy, 32), self.q_blocks) // step * step)

    def run(self, band: range) -> None:
        """One band of query blocks, and what it says added to the rest."""
        p, ask, none = self.problem, self.question, self.lse
        strips = self.table.strips(band)
        row_stop = min(p.q_len, band.stop * SIDE)
        rows, slots = row_stop - band.start * SIDE, len(band) // 2 + 1
        column = self._zeros(slots, self.k_blocks * SIDE) if ask.columns else none
        cells = self._empty(strips.count, 2, SIDE, 2 * SIDE) if ask.diagonals else none
        pooled = (len(band) * SIDE // self.part[0], self.k_blocks * SIDE // self.part[1])
        # Blocks that are not visited leave nothing behind; without a mask there are none.
        place = self._empty if p.mask is None else self._zeros
        sums, maxima = (place(*pooled) if w else none for w in (ask.pool_sums, ask.pool_maxima))
        count = candidate = candidate_at = none
        if ask.top:
            count = self._zeros(rows, dtype=torch.int32)
            candidate = self._empty(rows, PLACES, GROUP)
            candidate_at = self._empty(rows, PLACES, dtype=torch.int32)
        hopper_survey_kernel[(strips.count, p.heads, p.batch)](
            boxes(self.operands.q, SIDE),
            boxes(self.operands.k, SIDE),
            self.lse,
            self.tau,
            self.table.low,
            self.table.high,
            self.table.edges,
            strips.table,
            column,
            cells,
            sums,
            maxima,
            count,
            candidate,
            candidate_at,
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
            PLACES=PLACES,
            COLUMNS=ask.columns,
            TOP=ask.top > 0,
            DIAGONALS=ask.diagonals,
            SUMS=ask.pool_sums,
            MAXIMA=ask.pool_maxima,
            POOL_Q=self.part[0],
            POOL_K=self.part[1],
            num_warps=WARPS,
        )
        if self.found.columns is not None:
            self.found.columns += column.sum(2)[..., : p.k_len]
        if self.found.diagonals is not None:
            self._add_diagonals(self.found.diagonals, cells, band)
        if self.found.pool_sums is not None:
            self._put(self.found.pool_sums, sums, band, torch.sum)
        if self.found.pool_maxima is not None:
            self._put(self.found.pool_maxima, maxima, band, torch.amax)
        if ask.top:
            self._select(count, candidate, candidate_at, band, rows)

    def _add_diagonals(self, total: Tensor, cells: Tensor, band: range) -> None:
        strips = self.table.strips(band)
        halves = strips.halves.shape[1]
        diagonals_kernel[(2 * (halves + 1), self.problem.batch * self.problem.heads)](
            cells,
            strips.halves,
            total,
            self.problem.heads,
            strips.count,
            halves if self.table.planes > 1 else 0,
            strips.first,
            halves,
            self.problem.q_len,
            total.shape[-1],
            SIDE=SIDE,
        )

    def _put(self, total: Tensor, part: Tensor, band: range, how) -> None:
        """Put the band's blocks in their place, each put together from its parts."""
        high, wide = self.pool // self.part[0], self.pool // self.part[1]
        whole = pad(part, (0, -part.shape[-1] % wide, 0, -part.shape[-2] % high))
        whole = how(whole.unflatten(-1, (-1, wide)).unflatten(-3, (-1, high)), dim=(-3, -1))
        rows = total[..., band.start * SIDE // self.pool :, :][..., : whole.shape[-2], :]
        rows.copy_(whole[..., : rows.shape[-2], : rows.shape[-1]])

    def _select(self, count: Tensor, candidate: Tensor, candidate_at: Tensor, band: range, rows: int) -> None:
        maps = self.problem.batch * self.problem.heads
        select_kernel[(-(-rows // ROWS), maps)](
            count,
            candidate,
            candidate_at,
            self.found.weight,
            self.found.key,
            self.again,
            rows,
            self.problem.q_len,
            band.start * SIDE,
            self.q_blocks,
            K=self.question.top,
            PLACES=PLACES,
            GROUP=GROUP,
            ROWS=ROWS,
            SIDE=SIDE,
        )

    def redo(self) -> None:
        """Rows whose candidates did not fit their places are searched one by one."""
        weight, key = self.found.weight, self.found.key
        if weight is not None and key is not None:
            fill_top_keys(self.problem, self.lse, weight, key, self.again)
