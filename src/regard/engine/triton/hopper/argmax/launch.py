"""Launches the search for the argmax key of each row."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Int32
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.triton.hopper.argmax.kernel import (
    GROUP,
    MAX_FIRST,
    WORDS,
    group_by_tile_kernel,
    hopper_argmax_kernel,
)
from regard.engine.triton.launch.start import aligned, start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import intervals

__all__ = ["MAX_FIRST_KEYS", "find_argmax"]

# The most leading keys whose weight the argmax kernel can sum.
MAX_FIRST_KEYS = MAX_FIRST.value
# Queries that one program sorts; queries and tiles that it processes at once; its warps.
PART_ROWS, ROWS, TILES, GROUPING_WARPS = 16384, 4096, 256, 16
REGISTERS = 128


def find_argmax(
    operands: Operands, tiles: Int32[Tensor, "batch heads q 1"], result: Streamed, first: int, block_k: int
) -> None:
    """Fill in the argmax keys, given the tile of each row's maximum; if requested, also the total weight of
    the `first` keys."""
    p = operands.problem
    groups = _group_by_tile(p, tiles, result, first, -(-p.k_len // block_k))
    start(
        hopper_argmax_kernel,
        (groups.most, p.batch * p.heads * groups.parts),
        **operands.plain,
        **intervals(p).rows,
        COUNT=groups.counts,
        GROUPS=groups.table,
        NUMBERS=groups.numbers,
        LSE=result.lse,
        ARGMAX=result.argmax,
        FIRST_WEIGHT=result.lse if result.first is None else result.first,
        scale=operands.scale,
        q_len=p.q_len,
        k_len=p.k_len,
        heads=p.heads,
        group=p.group,
        parts=groups.parts,
        groups=groups.most,
        first=first,
        DIM=p.q.shape[-1],
        BLOCK_K=block_k,
        HAS_FIRST=first > 0,
        num_warps=4,
        maxnreg=REGISTERS,
    )


class _Groups(NamedTuple):
    """Rows grouped by tile: `table` describes groups of `numbers`, `counts` per part and at most `most`
    each."""

    counts: Tensor
    table: Tensor
    numbers: Tensor
    parts: int
    most: int


def _group_by_tile(
    problem: Problem, tiles: Int32[Tensor, "batch heads q 1"], result: Streamed, first: int, count: int
) -> _Groups:
    """Sort the rows of each map into groups that share one of `count` tiles."""
    p, maps = problem, problem.batch * problem.heads
    part_rows = min(PART_ROWS, p.q_len)
    parts = -(-p.q_len // part_rows)
    # At most: one group per tile may be partly filled.
    most = count + part_rows // GROUP.value
    sizes = (maps * parts * count, maps * parts, maps * parts * most * WORDS.value, tiles.numel())
    sizes = [aligned(size) for size in sizes]
    memory = torch.empty(sum(sizes), dtype=torch.int32, device=tiles.device)
    ends, counts, table, numbers = memory.split_with_sizes(sizes)
    start(
        group_by_tile_kernel,
        (maps, parts),
        tiles,
        ends,
        counts,
        table,
        numbers,
        result.argmax,
        result.lse if result.first is None else result.first,
        p.q_len,
        count,
        part_rows,
        most,
        HAS_FIRST=first > 0,
        GROUP=GROUP.value,
        ROWS=ROWS,
        TILES=TILES,
        num_warps=GROUPING_WARPS,
    )
    return _Groups(counts, table, numbers, parts, most)
