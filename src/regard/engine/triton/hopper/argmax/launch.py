"""Launches the search for the argmax key of each row."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import torch
from jaxtyping import Int32
from torch import Tensor

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
    maps, count = p.batch * p.heads, -(-p.k_len // block_k)
    part_rows = min(PART_ROWS, p.q_len)
    parts = -(-p.q_len // part_rows)
    # At most: one group per tile may be partly filled.
    groups = count + part_rows // GROUP.value
    sizes = (maps * parts * count, maps * parts, maps * parts * groups * WORDS.value, tiles.numel())
    sizes = [aligned(size) for size in sizes]
    room = torch.empty(sum(sizes), dtype=torch.int32, device=tiles.device)
    ends, counts, table, numbers = room.split_with_sizes(sizes)
    first_weight = result.lse if result.first is None else result.first
    start(
        group_by_tile_kernel,
        (maps, parts),
        tiles,
        ends,
        counts,
        table,
        numbers,
        result.argmax,
        first_weight,
        p.q_len,
        count,
        part_rows,
        groups,
        HAS_FIRST=first > 0,
        GROUP=GROUP.value,
        ROWS=ROWS,
        TILES=TILES,
        num_warps=GROUPING_WARPS,
    )
    start(
        hopper_argmax_kernel,
        (groups, maps * parts),
        **operands.plain,
        **intervals(p).rows,
        COUNT=counts,
        GROUPS=table,
        NUMBERS=numbers,
        LSE=result.lse,
        ARGMAX=result.argmax,
        FIRST_WEIGHT=first_weight,
        scale=operands.scale,
        q_len=p.q_len,
        k_len=p.k_len,
        heads=p.heads,
        group=p.group,
        parts=parts,
        groups=groups,
        first=first,
        DIM=p.q.shape[-1],
        BLOCK_K=block_k,
        HAS_FIRST=first > 0,
        num_warps=4,
        maxnreg=REGISTERS,
    )
