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
from regard.engine.triton.schedule.plan import Plan
from regard.engine.triton.schedule.spans import Spans
from regard.engine.triton.second_pass.kernel import (
    diagonal_kernel,
    merge_blocks_kernel,
    second_pass_kernel,
    top_keys_kernel,
)

__all__ = ["SweepRequest", "SweepResult", "merge_blocks", "pair_counts", "sweep", "top_keys"]

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
        borders = [*request.borders, *[torch.inf] * (self.bins - len(request.borders))]
        self.borders = torch.tensor(borders, dtype=torch.float32, device=p.q.device)
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
        p, request, table, none = self.problem, self.request, self.table, self.lse
        runs = table.by_diagonal(band) if request.diagonals else table.by_key(band)
        lines = runs.order.shape[1]
        # The kernel writes visited tiles only, so buffers are cleared unless every tile is visited.
        place = self._empty if table.visited == table.cover.numel() else self._zeros
        column = column_max = none
        pooled = (len(band) * self.pool[0], table.k_blocks * self.pool[1])
        if request.columns:
            column = place(len(band) if request.diagonals else 1, table.k_blocks * table.block_k)
        if request.column_maxima:
            column_max = place(table.k_blocks * table.block_k)
        diagonal = self._empty(lines, 2, table.block_q) if request.diagonals else none
        sums, maxima = (place(*pooled) if w else none for w in (request.pool_sums, request.pool_maxima))
        above = self._zeros(lines, self.bins, dtype=torch.int32)
        weights = none if request.weights is None else request.weights
        chunk = lines
        if request.diagonals:
            tile = 4 * table.block_q * table.block_k * p.batch * p.heads
            chunk = max(1, min(lines, CELL_BYTES // tile))
        arguments = dict(
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
            COLUMN=column,
            COLUMN_MAX=column_max,
            POOL_SUM=sums,
            POOL_MAX=maxima,
            ABOVE=above,
            first_block=band.start,
            band=len(band),
            k_blocks=table.k_blocks,
            lines=lines,
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
        for first in range(0, lines, chunk):
            some = min(chunk, lines - first)
            cells = none
            if request.diagonals:
                cells = torch.empty(*self.maps, some, table.block_k, table.block_q, device=none.device)
            grid, place = (some, p.heads, p.batch), {"first_line": first, "chunk": some}
            start(second_pass_kernel, grid, **arguments, **place, CELLS=cells)
            if request.diagonals:
                about = {"heads": p.heads, "plane_stride": arguments["plane_stride"], "lines": lines, **place}
                start(
                    diagonal_kernel,
                    grid,
                    CELLS=cells,
                    DIAGONAL=diagonal,
                    ORDER=runs.order,
                    **about,
                    BLOCK=table.block_q,
                    STEP=16,
                )
        if self.found.columns is not None:
            self.found.columns += column.sum(2)[..., : p.k_len]
        if self.found.column_maxima is not None:
            found = self.found.column_maxima
            torch.maximum(found, column_max[..., : p.k_len], out=found)
        if self.found.diagonals is not None:
            self._add_diagonals(self.found.diagonals, diagonal, band)
        if self.found.above is not None:
            self.found.above += above.sum(2)[..., : len(request.borders)]
        for total, part, largest in (
            (self.found.pool_sums, sums, False),
            (self.found.pool_maxima, maxima, True),
        ):
            if total is not None:
                self._add_pooled(total, part, largest, band)

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

    def _add_pooled(self, total: Tensor, part: Tensor, largest: bool, band: range) -> None:
        """Add the band's parts to the overview; a block may consist of the parts of several tiles."""
        high, wide = (max(1, self.request.pool // block) for block in self.cut.blocks)
        merge_blocks(total, part, (high, wide), band.start * self.pool[0], largest=largest)


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


def pair_counts(problem: Problem, *, diagonal: bool, skip: int = 0) -> Int64[Tensor, "rows heads n"]:
    """The number of allowed pairs, by key or by diagonal; batch and heads are 1 if all share the mask."""
    p = problem
    operands = Operands(replace(p, v=p.k))
    table = operands.plan(operands.config("columns").blocks)
    if table.spans is None:
        return _count_by_sweep(problem, diagonal, skip)
    spans = table.spans
    return table.once(("pair_counts", diagonal, skip), lambda: _count_by_spans(p, spans, diagonal, skip))


def _count_by_spans(problem: Problem, spans: Spans, diagonal: bool, skip: int) -> Tensor:
    p = problem
    low, high = (x.long() for x in spans)
    low = low.clamp(min=skip)
    some = (low < high).long()
    low, high = (x.where(some > 0, 0) for x in (low, high))
    length = p.k_len
    if diagonal:
        length = max(p.q_len, 1) + p.k_len - 1
        to_left = p.q_len - 1 - torch.arange(p.q_len, device=low.device)
        low, high = low + to_left, high + to_left
    # Add one where an interval begins and subtract one where it ends. Integers, so the order of atomic
    # additions does not matter.
    change = torch.zeros(*low.shape[:2], length + 1, dtype=torch.int64, device=low.device)
    change.scatter_add_(2, low, some).scatter_add_(2, high, -some)
    return change.cumsum(2)[..., :length]


def _count_by_sweep(problem: Problem, diagonal: bool, skip: int) -> Any:
    """Count pairs by sweeping a map of zeros, where every allowed pair has weight exp(0 - 0) = 1."""
    mask = problem.mask
    rows, heads = (1, 1) if mask is None else (mask.batch or 1, mask.heads or 1)
    q = problem.q.new_zeros(rows, heads, problem.q_len, 16)
    k = problem.k.new_zeros(rows, heads, problem.k_len, 16)
    plain = replace(problem.scoring, bias=None, softcap=None, score_mod=None, scale=1.0)
    zeros = replace(problem, q=q, k=k, v=k, sink=None, scoring=plain)
    lse = torch.zeros(q.shape[:3], dtype=torch.float32, device=q.device)
    found = sweep(zeros, lse, SweepRequest(columns=not diagonal, diagonals=diagonal, skip=skip))
    sums = found.diagonals if diagonal else found.columns
    return None if sums is None else sums.round().long()
