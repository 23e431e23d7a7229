"""Launches the portable second pass: columns, diagonals, pooled blocks and histograms of a map."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.problem import Problem
from regard.engine.riders import Riders
from regard.engine.triton.decode import launch as decode
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.plan import Plan, Runs
from regard.engine.triton.second_pass.kernel import (
    diagonal_kernel,
    merge_blocks_kernel,
    second_pass_kernel,
    top_keys_kernel,
)
from regard.memo import remembered

__all__ = ["SweepRequest", "SweepResult", "merge_blocks", "sweep", "top_keys"]

# Bytes for the columns and overview parts that tiles store, per band of query blocks.
BAND_BYTES = 1 << 29
# Bytes for the accumulated tiles of diagonals, per launch.
CELL_BYTES = 1 << 28
# A program handles one diagonal of tiles: with longer bands there would be too few programs.
BAND_BLOCKS = 128
# Overview parts that a program combines at a time, and how many of them in a row of a block.
POOLED, MOST_PARTS = 512, 16


@dataclass(frozen=True)
class SweepRequest:
    """The results that one sweep must return.

    `weights` weighs queries in column sums. `skip` leaves out that many first keys. With `past`, diagonals of
    keys after the query are not needed. Column maxima and diagonals need a sweep each.
    """

    columns: bool = False
    column_maxima: bool = False
    weights: Float[Tensor, "#batch #heads q"] | None = None
    diagonals: bool = False
    skip: int = 0
    past: bool = False
    pool: int = 0
    pool_sums: bool = False
    pool_maxima: bool = False
    borders: tuple[float, ...] = ()
    of_score: bool = False


@dataclass
class SweepResult:
    """The results of a sweep, for the whole map."""

    columns: Float[Tensor, "batch heads k"] | None = None
    column_maxima: Float[Tensor, "batch heads k"] | None = None
    diagonals: Float[Tensor, "batch heads diagonals"] | None = None
    pool_sums: Float[Tensor, "batch heads q_blocks k_blocks"] | None = None
    pool_maxima: Float[Tensor, "batch heads q_blocks k_blocks"] | None = None
    above: Int64[Tensor, "batch heads borders"] | None = None


@dataclass(frozen=True)
class _Buffers:
    """Intermediate results of a band; results that are not requested have any tensor in their place."""

    column: Tensor
    column_max: Tensor
    diagonal: Tensor
    sums: Tensor
    maxima: Tensor
    above: Tensor


def sweep(problem: Problem, lse: Float[Tensor, "batch heads q"], request: SweepRequest) -> SweepResult:
    """Sweep the map once, in bands of queries so that intermediate results stay small."""
    state = _Sweep(problem, lse, request)
    for first in range(0, state.table.q_blocks, state.band):
        state.run(range(first, min(first + state.band, state.table.q_blocks)))
    return state.found


class _Sweep:
    """One sweep: its tiles and bands, and the sums so far."""

    def __init__(self, problem: Problem, lse: Tensor, request: SweepRequest) -> None:
        p = problem
        self.problem, self.request = problem, request
        self.operands = Operands(replace(problem, v=problem.k))
        self.cut = self.operands.config("diagonals" if request.diagonals else "columns")
        self.table: Plan = self.operands.plan(self.cut.blocks)
        # exp(s - inf) = 0: a dead row has weight nowhere.
        self.lse = lse.masked_fill(lse == -torch.inf, torch.inf).contiguous()
        self.maps = (p.batch, p.heads)
        pooled = request.pool_sums or request.pool_maxima
        self.pool = tuple(max(1, block // request.pool) for block in self.cut.blocks) if pooled else (1, 1)
        self.bins = max(2, 1 << (len(request.borders) - 1).bit_length()) if request.borders else 1
        self.borders = _borders(request.borders, self.bins, p.q.device) if request.borders else self.lse
        self.band = self._band()
        diagonals = max(p.q_len, 1) + p.k_len - 1
        shape = (-(-p.q_len // request.pool), -(-p.k_len // request.pool)) if pooled else ()
        self.found = SweepResult(
            columns=self._zeros(p.k_len) if request.columns else None,
            column_maxima=self._zeros(p.k_len) if request.column_maxima else None,
            diagonals=self._zeros(diagonals) if request.diagonals else None,
            pool_sums=self._zeros(*shape) if request.pool_sums else None,
            pool_maxima=self._zeros(*shape) if request.pool_maxima else None,
            above=self._zeros(len(request.borders), dtype=torch.int64) if request.borders else None,
        )

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(*self.maps, *shape, dtype=dtype, device=self.problem.q.device)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*self.maps, *shape, dtype=torch.float32, device=self.problem.q.device)

    def _band(self) -> int:
        """The number of query blocks per band, limited by BAND_BYTES."""
        request, table = self.request, self.table
        cells = self.pool[0] * self.pool[1] * (request.pool_sums + request.pool_maxima)
        cells += table.block_k * (request.columns and request.diagonals)
        bytes_per_block = 4 * table.k_blocks * cells * self.problem.batch * self.problem.heads
        fits = BAND_BYTES // bytes_per_block if bytes_per_block else table.q_blocks
        return max(1, min(table.q_blocks, fits, BAND_BLOCKS if request.diagonals else fits))

    def run(self, band: range) -> None:
        """Sweep one band of query blocks, and add its sums to the map's."""
        request = self.request
        runs = self.table.by_diagonal(band) if request.diagonals else self.table.by_key(band)
        buffers = self._buffers(band, runs.order.shape[1])
        self._launch(band, runs, buffers)
        if self.found.columns is not None:
            self.found.columns += buffers.column.sum(2)[..., : self.problem.k_len]
        if self.found.column_maxima is not None:
            found = self.found.column_maxima
            torch.maximum(found, buffers.column_max[..., : self.problem.k_len], out=found)
        if self.found.diagonals is not None:
            self._add_diagonals(self.found.diagonals, buffers.diagonal, band)
        if self.found.above is not None:
            self.found.above += buffers.above.sum(2)[..., : len(request.borders)]
        if self.found.pool_sums is not None:
            self._add_pooled(self.found.pool_sums, buffers.sums, band, largest=False)
        if self.found.pool_maxima is not None:
            self._add_pooled(self.found.pool_maxima, buffers.maxima, band, largest=True)

    def _buffers(self, band: range, lines: int) -> _Buffers:
        """Memory for the intermediate results of a band with `lines` blocks of keys or diagonals of tiles."""
        request, table, none = self.request, self.table, self.lse
        # The kernel writes visited tiles only, so buffers are cleared unless every tile is visited.
        new = self._empty if table.visited == table.cover.numel() else self._zeros
        column = column_max = none
        pooled = (len(band) * self.pool[0], table.k_blocks * self.pool[1])
        if request.columns:
            column = new(len(band) if request.diagonals else 1, table.k_blocks * table.block_k)
        if request.column_maxima:
            column_max = new(table.k_blocks * table.block_k)
        diagonal = self._empty(lines, 2, table.block_q) if request.diagonals else none
        sums, maxima = (
            new(*pooled) if wanted else none for wanted in (request.pool_sums, request.pool_maxima)
        )
        above = self._zeros(lines, self.bins, dtype=torch.int32) if request.borders else none
        return _Buffers(column, column_max, diagonal, sums, maxima, above)

    def _launch(self, band: range, runs: Runs, buffers: _Buffers) -> None:
        """Launch the kernel on a band; with diagonals on as many lines at a time as CELL_BYTES allows."""
        p, request, table, none = self.problem, self.request, self.table, self.lse
        lines = runs.order.shape[1]
        arguments = self._arguments(band, runs, buffers)
        if not request.diagonals:
            place = {"first_line": 0, "chunk": lines}
            start(second_pass_kernel, (lines, p.heads, p.batch), **arguments, **place, CELLS=none)
            return
        tile = 4 * table.block_q * table.block_k * p.batch * p.heads
        chunk = max(1, min(lines, CELL_BYTES // tile))
        about = {
            "heads": p.heads,
            "plane_stride": arguments["plane_stride"],
            "lines": lines,
            "ORDER": runs.order,
        }
        for first in range(0, lines, chunk):
            some = min(chunk, lines - first)
            cells = torch.empty(*self.maps, some, table.block_k, table.block_q, device=none.device)
            grid, place = (some, p.heads, p.batch), {"first_line": first, "chunk": some, "CELLS": cells}
            start(second_pass_kernel, grid, **arguments, **place)
            sizes = {"BLOCK": table.block_q, "STEP": 16}
            start(diagonal_kernel, grid, **about, **place, **sizes, DIAGONAL=buffers.diagonal)

    def _arguments(self, band: range, runs: Runs, buffers: _Buffers) -> dict[str, Any]:
        """The arguments that all launches of a band share."""
        request, table = self.request, self.table
        weights = self.lse if request.weights is None else request.weights
        return dict(
            **self.operands.pairs(self.cut, both=True),
            **self.operands.sizes,
            **self.operands.scoring,
            **self.operands.visits(table, runs),
            **self.cut.options,
            ORDER=runs.order,
            LSE=self.lse,
            WEIGHT=weights,
            weight_b=weights.stride(0) if weights.shape[0] > 1 else 0,
            weight_h=weights.stride(1) if weights.shape[1] > 1 else 0,
            BORDERS=self.borders,
            COLUMN=buffers.column,
            COLUMN_MAX=buffers.column_max,
            POOL_SUM=buffers.sums,
            POOL_MAX=buffers.maxima,
            ABOVE=buffers.above,
            first_block=band.start,
            band=len(band),
            k_blocks=table.k_blocks,
            lines=runs.order.shape[1],
            skip=request.skip,
            COLUMNS=request.columns,
            COLUMN_MAXIMA=request.column_maxima,
            WEIGHTED=request.weights is not None,
            DIAGONALS=request.diagonals,
            SKIP=request.skip > 0,
            SUMS=request.pool_sums,
            MAXIMA=request.pool_maxima,
            POOL_Q=self.pool[0],
            POOL_K=self.pool[1],
            BINS=self.bins,
            OF_SCORE=request.of_score,
        )

    def _add_diagonals(self, total: Tensor, found: Tensor, band: range) -> None:
        """Add the two halves that each diagonal of tiles stored to the diagonals of the map.

        The upper half of one diagonal of tiles and the lower half of the next cover the same diagonals of
        cells.
        """
        joined = pad(found[..., 0, :], (0, 0, 0, 1)) + pad(found[..., 1, :], (0, 0, 1, 0))
        cells = joined.flatten(-2)  # from key - query = -(all queries up to the band's last) on
        first = self.problem.q_len - 1 - band.stop * self.table.block_q
        here = slice(max(0, -first), total.shape[-1] - first)
        part = cells[..., here]
        start = max(0, first)
        total[..., start : start + part.shape[-1]] += part

    def _add_pooled(self, total: Tensor, part: Tensor, band: range, *, largest: bool) -> None:
        """Add the band's parts to the overview; a block may consist of the parts of several tiles."""
        high, wide = (max(1, self.request.pool // block) for block in self.cut.blocks)
        merge_blocks(total, part, (high, wide), band.start * self.pool[0], largest=largest)


@remembered(64)
def _borders(given: tuple[float, ...], bins: int, device: torch.device) -> Float[Tensor, " bins"]:
    """The borders of a histogram on the device; copying them there waits for all work before it."""
    borders = [*given, *[torch.inf] * (bins - len(given))]
    return torch.tensor(borders, dtype=torch.float32, device=device)


def merge_blocks(
    total: Float[Tensor, "batch heads q_blocks k_blocks"],
    part: Float[Tensor, "batch heads rows columns"],
    size: tuple[int, int],
    first: int = 0,
    *,
    largest: bool,
) -> None:
    """Add parts to the blocks of a map, or with `largest` take the maximum; `size` parts make one block.

    Both must be contiguous. The first row of parts may be in the middle of a block: other calls add the rest.
    """
    high, wide = size
    batch, heads, total_rows, total_columns = total.shape
    rows, columns = part.shape[2:]
    count = -(-min(first + rows, total_rows * high) // high) - first // high
    parts = min(MOST_PARTS, 1 << (wide - 1).bit_length())
    blocks = POOLED // parts
    start(
        merge_blocks_kernel,
        (batch * heads * count, -(-total_columns // blocks)),
        part,
        total,
        rows,
        columns,
        total_rows,
        total_columns,
        count,
        first,
        high,
        wide,
        LARGEST=largest,
        BLOCKS=blocks,
        PARTS=parts,
    )


def top_keys(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    k: int,
    tile_maxima: Float[Tensor, "batch heads q classes"] | None = None,
) -> tuple[Float[Tensor, "batch heads q top"], Int64[Tensor, "batch heads q top"]]:
    """The k heaviest keys of each row, heaviest first; weight 0 and key -1 where there are fewer.

    A decode step whose `tile_maxima` are known needs no sweep.
    """
    if decode.applicable(problem):
        if tile_maxima is None:
            tile_maxima = decode.decode(
                replace(problem, v=problem.k[..., :16]), Riders(top_keys=k)
            ).tile_maxima
        return decode.top_keys_from_tiles(problem, lse, tile_maxima, k)  # pyright: ignore[reportArgumentType]
    weight = lse.new_empty(*lse.shape, k)
    key = torch.empty(weight.shape, dtype=torch.int64, device=weight.device)
    operands = Operands(replace(problem, v=problem.k))
    cut = operands.config("top")
    table = operands.plan(cut.blocks)
    start(
        top_keys_kernel,
        (table.q_blocks, problem.heads, problem.batch),
        **operands.pairs(cut),
        **operands.sizes,
        **operands.scoring,
        **operands.visits(table, table.by_query),
        **cut.options,
        ORDER=table.by_query.order,
        LSE=lse.contiguous(),
        TOP_WEIGHT=weight,
        TOP_KEY=key,
        TOP=max(2, 1 << (k - 1).bit_length()),
        TAKE=k,
    )
    return weight, key
