"""Launches the second pass for Hopper, in bands of queries so that intermediate results stay small."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from regard.engine.lazy_zeros import LazyZeros
from regard.engine.problem import Problem
from regard.engine.triton.hopper.second_pass.diagonals import PARTIALS
from regard.engine.triton.hopper.second_pass.kernel import BY_WARP, hopper_second_pass_kernel
from regard.engine.triton.hopper.second_pass.reduction import (
    lse2_kernel,
    reduce_columns_kernel,
    reduce_diagonals_kernel,
)
from regard.engine.triton.hopper.tma import line_descriptor, tile_descriptor
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import SIDE, Strips, intervals
from regard.engine.triton.second_pass.sweep import SweepRequest, SweepResult, merge_blocks

__all__ = ["can_sweep", "sweep"]

# Bytes for intermediate results of a sweep; bands of queries are as large as that allows.
BAND_BYTES = 1 << 30
# Programs per launch at least, several for every multiprocessor, and steps per program at most: with longer
# programs, some multiprocessors would wait long for the last ones.
PROGRAMS, STEPS = 512, 320
# The shortest strips that a band is cut into, in blocks of queries.
SHORTEST = 32
WARPS = 4


def can_sweep(request: SweepRequest) -> bool:
    """Whether the Hopper sweep can answer a request."""
    unsupported = request.weights is not None or request.skip or request.borders or request.column_maxima
    return not unsupported and (request.pool & (request.pool - 1) == 0 or request.pool % SIDE == 0)


def sweep(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    request: SweepRequest,
    targets: SweepResult | None = None,
    lazy_zeros: LazyZeros | None = None,
) -> SweepResult:
    """Sweep the map once. Results go to the tensors of `targets`, which are 0 or uninitialised, if it has
    them; otherwise to new ones."""
    state = _Sweep(problem, lse, request, targets or SweepResult(), lazy_zeros or LazyZeros())
    for first in range(0, state.q_blocks, state.band):
        state.run(range(first, min(first + state.band, state.q_blocks)))
    # An empty map has no bands, so nothing has written to the targets.
    state.lazy_zeros.clear(*vars(state.found).values())
    return state.found


class _Sweep:
    """One sweep: its bands and strips, and the results so far."""

    def __init__(
        self,
        problem: Problem,
        lse: Tensor,
        request: SweepRequest,
        targets: SweepResult,
        lazy_zeros: LazyZeros,
    ) -> None:
        p, self.lazy_zeros = problem, lazy_zeros
        self.problem, self.request, self.lse = p, request, lse.contiguous()
        self.operands = Operands(replace(p, v=p.k))
        self.table = intervals(p)
        self.maps, self.device = (p.batch, p.heads), p.q.device
        self.q_blocks, self.k_blocks = -(-p.q_len // SIDE), -(-p.k_len // SIDE)
        pool = request.pool if request.pool_sums or request.pool_maxima else SIDE
        # Larger pooled blocks are combined afterwards: sums from the column sums of a block of queries,
        # maxima from the maxima of a warp's rows.
        self.pool, self.part = pool, (min(pool, SIDE), min(pool, BY_WARP.value))
        self.from_columns = request.pool_sums and pool % SIDE == 0
        self.receives = request.columns or self.from_columns
        # Computing warpgroups, two diagonals each. With small pooled blocks two warpgroups are faster.
        small = request.pool_maxima or (request.pool_sums and not self.from_columns)
        self.warpgroups = 2 if small else 3
        self.found = targets
        if request.columns and targets.columns is None:
            targets.columns = self._new_sum(p.k_len)
        if request.diagonals and targets.diagonals is None:
            targets.diagonals = self._new_sum(p.q_len + p.k_len - 1)
        shape = (-(-p.q_len // pool), -(-p.k_len // pool))
        if request.pool_sums and targets.pool_sums is None:
            targets.pool_sums = self._new_sum(*shape)
        if request.pool_maxima and targets.pool_maxima is None:
            targets.pool_maxima = self._new_sum(*shape)
        self.lse2 = self._lse2()
        self.band, self.cuts = self._band()

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*self.maps, *shape, dtype=torch.float32, device=self.device)

    def _new_sum(self, *shape: int) -> Tensor:
        return self.lazy_zeros((*self.maps, *shape), dtype=torch.float32, device=self.device)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*self.maps, *shape, dtype=torch.float32, device=self.device)

    def _lse2(self) -> Float[Tensor, "maps rows"]:
        """The log-sum-exp of each row in units of log 2, padded to whole blocks."""
        lse2 = self._empty(self.q_blocks * SIDE).flatten(0, 1)
        maps, q_len = len(lse2), self.problem.q_len
        start(lse2_kernel, (self.q_blocks, maps), self.lse, lse2, q_len, SIDE=SIDE)
        return lse2

    def _band(self) -> tuple[int, int]:
        """The number of query blocks per band, limited by BAND_BYTES, and the number of parts to cut its
        strips into, so that there are enough programs."""
        request, maps = self.request, self.problem.batch * self.problem.heads
        parts = SIDE // self.part[0] * (SIDE // self.part[1])
        cells = parts * (request.pool_maxima + (request.pool_sums and not self.from_columns))
        bytes_per_block = 4 * self.k_blocks * (cells + (SIDE + 1) * self.receives)
        strips = -(-self.k_blocks // (2 * self.warpgroups)) * maps
        cuts = -(-PROGRAMS // strips)
        budget = BAND_BYTES - 4 * PARTIALS.value * self.warpgroups * strips * cuts * request.diagonals
        most = max(1, min(budget // max(1, bytes_per_block * maps), self.q_blocks))
        # Bands of equal size, rather than full ones and a remainder.
        band = -(-self.q_blocks // -(-self.q_blocks // most))
        return band, max(1, min(max(cuts, -(-band // STEPS)), band // SHORTEST))

    def _strips(self, band: range) -> Strips:
        step = -(-len(band) // self.cuts)
        starts = range(band.start, band.stop, step)
        bands = tuple(range(first, min(first + step, band.stop)) for first in starts)
        if self.request.diagonals and self.request.past:
            # Launch strips with diagonals apart from those without, if both launches have enough programs.
            strips = self.table.strips(bands, self.warpgroups, past=True)
            rest = strips.without_diagonals.shape[1]
            if not rest or min(strips.count, rest) * self.problem.batch * self.problem.heads >= PROGRAMS:
                return strips
        return self.table.strips(bands, self.warpgroups)

    def run(self, band: range) -> None:
        """Sweep one band of query blocks, and add its results to the others."""
        request, strips, none = self.request, self._strips(band), self.lse
        column = self._empty(len(band), self.k_blocks * SIDE) if self.receives else none
        cells = self._empty(strips.count, self.warpgroups, PARTIALS.value) if request.diagonals else none
        pooled = (len(band) * SIDE // self.part[0], self.k_blocks * SIDE // self.part[1])
        direct = self.found.pool_sums if not self.from_columns else None
        sums, maxima = (self._parts(total, pooled) for total in (direct, self.found.pool_maxima))
        overview = (none if sums is None else sums, none if maxima is None else maxima)
        asked = {"SUMS": sums is not None, "MAXIMA": maxima is not None, "COLUMNS": self.receives}
        self._launch(
            band,
            strips.with_diagonals,
            column,
            cells,
            *overview,
            *pooled,
            DIAGONALS=request.diagonals,
            **asked,
        )
        self._launch(
            band, strips.without_diagonals, column, none, *overview, *pooled, DIAGONALS=False, **asked
        )
        if self.receives:
            self._add_columns(column, band)
        if self.found.diagonals is not None:
            self._add_diagonals(self.found.diagonals, cells, strips)
        for total, part, largest in ((direct, sums, False), (self.found.pool_maxima, maxima, True)):
            if total is not None and part is not None and part is not total:
                self._add_pooled(total, part, self.part, band, largest=largest)

    def _launch(
        self,
        band: range,
        strips: Int32[Tensor, "planes strips 3"],
        column: Tensor,
        cells: Tensor,
        pool_sums: Tensor,
        pool_maxima: Tensor,
        *pooled: int,
        **asked: bool,
    ) -> None:
        """Launch the kernel on some strips of a band."""
        p, table, count = self.problem, self.table, strips.shape[1]
        if not count:
            return
        start(
            hopper_second_pass_kernel,
            (p.batch * p.heads, count),
            tile_descriptor(self.operands.q, SIDE),
            tile_descriptor(self.operands.k, SIDE),
            line_descriptor(self.lse2, SIDE),
            table.low,
            table.high,
            table.edges,
            strips,
            column,
            cells,
            pool_sums,
            pool_maxima,
            *table.strides,
            self.operands.scale,
            p.q_len,
            p.heads,
            p.group,
            count,
            strips.stride(0) if table.planes > 1 else 0,
            table.edges.stride(0) if table.planes > 1 else 0,
            band.start,
            min(p.q_len, band.stop * SIDE),
            len(band),
            self.k_blocks,
            *pooled,
            DIM=p.q.shape[-1],
            POOL_Q=self.part[0],
            POOL_K=self.part[1],
            WARPGROUPS=self.warpgroups,
            num_warps=WARPS,
            **asked,
        )

    def _parts(self, total: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
        """The tensor that a band's pooled blocks are written to: the overview itself, if shape and block size
        match.

        The kernel doesn't write blocks that it doesn't visit, so with a mask the tensor is cleared.
        """
        if total is None:
            return None
        unmasked = self.problem.mask is None
        if self.part == (self.pool, self.pool) and total.shape[2:] == shape and total.is_contiguous():
            if unmasked:
                self.lazy_zeros.take(total)
            else:
                self.lazy_zeros.clear(total)
            return total
        self.lazy_zeros.clear(total)
        return (self._empty if unmasked else self._zeros)(*shape)

    def _add_columns(self, column: Tensor, band: range) -> None:
        """Add up the column sums of a band: over all of its blocks of queries, and per block of keys."""
        total, seen, sums = self.found.columns, self.table.seen, self.found.pool_sums
        blocks, first, height = column, 0, len(band)
        if self.from_columns and self.pool == SIDE and sums is not None and sums.is_contiguous():
            # One sum per pair of blocks is one block of the overview: write it there directly.
            self.lazy_zeros.take(sums)
            blocks, first, height = sums, band.start, sums.shape[2]
        elif self.from_columns:
            blocks = self._empty(height, self.k_blocks)
        start(
            reduce_columns_kernel,
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
            first,
            height,
            0 if total is None or self.lazy_zeros.take(total) else 1,
            COLUMNS=total is not None,
            BLOCKS=self.from_columns,
            SIDE=SIDE,
            num_warps=1,
        )
        if sums is not None and self.from_columns and blocks is not sums:
            self.lazy_zeros.clear(sums)
            self._add_pooled(sums, blocks, (SIDE, SIDE), band, largest=False)

    def _add_diagonals(self, total: Tensor, cells: Tensor, strips: Strips) -> None:
        # Without a mask, a single part of the whole map covers every diagonal.
        covers_all = self.problem.mask is None and self.band == self.q_blocks and len(strips.pairs) == 1
        if not covers_all:
            self.lazy_zeros.clear(total)
        for some, first in zip(strips.pairs, strips.first, strict=True):
            pairs, before = some.shape[1], 0 if self.lazy_zeros.take(total) else 1
            start(
                reduce_diagonals_kernel,
                (2 * (pairs + 1), self.problem.batch * self.problem.heads),
                cells,
                some,
                total,
                self.problem.heads,
                strips.count * self.warpgroups,
                pairs if self.table.planes > 1 else 0,
                first,
                pairs,
                self.problem.q_len,
                total.shape[-1],
                before,
                SIDE=SIDE,
                PARTIALS=PARTIALS.value,
                num_warps=2,
            )

    def _add_pooled(
        self, total: Tensor, part: Tensor, size: tuple[int, int], band: range, *, largest: bool
    ) -> None:
        """Combine a band's parts into pooled blocks, and add them to the overview."""
        parts = (self.pool // size[0], self.pool // size[1])
        merge_blocks(total, part, parts, band.start * SIDE // size[0], largest=largest)
