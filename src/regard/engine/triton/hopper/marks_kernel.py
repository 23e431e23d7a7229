"""What the largest scores of tiles tell, read once: marks, which tiles are wanted, and an overview.

A program holds those of 32 queries in registers, eight of them in each warp, and warps only meet to put their
queries' bits together. That is as many tiles as registers hold; longer texts are read twice (tops_kernel.py).
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.sharing import LOG2E
from regard.engine.triton.hopper.tops_kernel import BITS, FAINTEST, SLACK

__all__ = ["hopper_marks_kernel"]


# fmt: off
@gluon.jit(do_not_specialize=[
    "q_len", "heads", "plane_stride", "first_row", "rows", "lines", "high", "wide", "redo_blocks"])
def hopper_marks_kernel(
    TILE_TOPS, LSE, BLOCKS, MARK, REDO, WANTED, HIGH, scale, q_len, heads, plane_stride, first_row, rows,
    lines, high, wide, redo_blocks,
    TOP: gl.constexpr, HIGHEST: gl.constexpr, CLASSES: gl.constexpr, GRAIN: gl.constexpr,
    BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, SIDE: gl.constexpr, LINES: gl.constexpr,
):
# fmt: on
    """`tops_kernel` and `wanted_kernel` for BITS queries of a band and at most LINES tiles.

    HIGH is 0 so far, and takes weights as integers: of numbers that are not negative these have the same
    order.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [16, 2], [1, 4], [1, 0])
    by_line: gl.constexpr = gl.SliceLayout(1, layout)
    by_row: gl.constexpr = gl.SliceLayout(0, layout)
    at_map = gl.program_id(1).to(gl.int64)
    in_band = gl.program_id(0) * BITS + gl.arange(0, BITS, by_row)
    row = first_row + in_band
    there = row < q_len
    run = BLOCKS + (at_map // heads * plane_stride + (first_row + gl.program_id(0) * BITS) // BLOCK_Q) * 4
    first, stop = gl.load(run) * (BLOCK_K // GRAIN), gl.load(run + 1) * (BLOCK_K // GRAIN)
    lse = gl.load(LSE + at_map * q_len + row, mask=there, other=float("-inf"))
    alive = lse > float("-inf")
    bound = gl.where(alive, lse, float("inf")) * LOG2E
    c = scale * LOG2E
    line = gl.arange(0, LINES, by_line)
    # Whole words of queries: four are read at once. What is behind the last one is nobody's, and in no sum.
    words = rows // BITS
    at = line[:, None] * (words * BITS) + in_band[None, :]
    visited = ((line >= first) & (line < stop))[:, None] & (in_band >= 0)[None, :]
    x = gl.load(TILE_TOPS + at_map * lines * (words * BITS) + at, mask=visited, other=float("-inf"))

    # Scores that are masked are far below all others: a row that needs one for its mark has too few.
    tops = gl.max(gl.reshape(x, [LINES // CLASSES, CLASSES, BITS]), 0)
    for _ in gl.static_range(TOP - 1):
        # Of equal ones all go, and the mark is lower than it need be.
        tops = gl.where(tops == gl.max(tops, 0)[None, :], float("-inf"), tops)
    mark = gl.convert_layout(gl.max(tops, 0), by_row)
    few = (mark * c < bound + FAINTEST) & alive
    mark -= SLACK * (gl.abs(mark) + gl.abs(bound) / c)
    mark = gl.where(alive & (mark > float("-inf")) & (few == 0), mark, float("inf"))
    gl.store(MARK + at_map * q_len + row, mark, mask=there)
    gl.store(REDO + at_map * redo_blocks + row // SIDE, 1, mask=few & there)

    # Nothing is at or above what is no number, not even what is nobody's.
    least = gl.where(mark < float("inf"), mark, float("nan"))
    bit = 1 << (in_band % BITS)
    bits = gl.sum(gl.where(x >= least[None, :], bit[None, :], 0), 1)
    gl.store(WANTED + at_map * lines * words + line * words + gl.program_id(0), bits, mask=line < lines)
    if HIGHEST:
        block = (first_row + gl.program_id(0) * BITS) // GRAIN
        weight = gl.exp2(gl.max(x * c - bound[None, :], 1))
        to = HIGH + (at_map * high + block) * wide + line
        some = (line < wide) & (block < high) & (weight > 0)
        gl.atomic_max(to, weight.to(gl.int32, bitcast=True), mask=some, sem="relaxed")
