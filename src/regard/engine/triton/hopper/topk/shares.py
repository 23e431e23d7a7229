"""Assigns a tile to each program that lists candidates, in proportion to the rows that want the tile.

Grid: (groups of programs, maps). In: the number of rows that want each tile. Out, per program: its tile, its
number among the programs of that tile, and their count. So the tile of a first key that every row wants takes
no longer than any other tile.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["shares_kernel"]


@triton.jit(do_not_specialize=["lines", "programs", "words"])
def shares_kernel(COUNT, SHARES, lines, programs, words, CHUNK: tl.constexpr, GROUP: tl.constexpr):
    """Give each wanted tile one program, and a share of the remaining programs, in order of tiles.

    A program without a tile gets a number past the last of the `words` of bits, so that it finds no row.
    """
    at_map = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    COUNT += at_map * lines
    total = at_map * 0
    for start in range(0, lines, CHUNK):
        line = start + tl.arange(0, CHUNK)
        total += tl.sum(tl.load(COUNT + line, mask=line < lines, other=0).to(tl.int64), 0)
    total = tl.maximum(total, 1)
    before = tl.program_id(0) * 0
    own_line, own_part, own_parts = number * 0, number * 0, number * 0
    for start in range(0, lines, CHUNK):
        line = start + tl.arange(0, CHUNK)
        count = tl.load(COUNT + line, mask=line < lines, other=0).to(tl.int64)
        parts = tl.where(count > 0, 1 + (count * (programs - lines) // total).to(tl.int32), 0)
        stop = before + tl.cumsum(parts, 0)
        part = number[:, None] - (stop - parts)[None, :]  # (GROUP, CHUNK)
        own = (part >= 0) & (part < parts[None, :])
        own_line += tl.sum(tl.where(own, line[None, :], 0), 1)
        own_part += tl.sum(tl.where(own, part, 0), 1)
        own_parts += tl.sum(tl.where(own, parts[None, :], 0), 1)
        before += tl.sum(parts, 0)
    idle, there = own_parts == 0, number < programs
    to = SHARES + (at_map * programs + number) * 3
    tl.store(to, own_line, mask=there)
    tl.store(to + 1, tl.where(idle, words, own_part), mask=there)
    tl.store(to + 2, tl.where(idle, 1, own_parts), mask=there)
