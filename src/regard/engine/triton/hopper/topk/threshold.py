"""Thresholds, wanted tiles and block maxima in one pass over the tile maxima.

Grid: (words of 32 queries, maps). In: tile maxima, lse. Out: one threshold per row, a bit per row and tile,
block maxima. A program holds the maxima of 32 queries in registers; a thread holds those of four queries and
every 16th tile (with 512 tiles, every 32nd). If there are more tiles than registers can hold,
threshold_two_pass.py is used.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.ring import LOG2E
from regard.engine.triton.hopper.thread_ops import kth_largest, store_block_maxima, store_tile_bits
from regard.engine.triton.hopper.topk.threshold_two_pass import BITS, FAINTEST, FARTHEST, SLACK

__all__ = ["hopper_threshold_kernel"]


@gluon.jit
def _class_maxima(x, CLASSES: gl.constexpr):
    """The class maxima of each row: the largest tile maximum of each class of tiles."""
    return gl.max(gl.reshape(x, [x.shape[0] // CLASSES, CLASSES, x.shape[1]]), 0)


@gluon.jit
def _just_below(x):
    """The next smaller number."""
    bits = x.to(gl.int32, bitcast=True)
    return gl.where(x > 0, bits - 1, gl.where(x < 0, bits + 1, -(2**31) + 1)).to(gl.float32, bitcast=True)


# fmt: off
@gluon.jit(do_not_specialize=[
    "q_len", "heads", "plane_stride", "first_row", "rows", "lines", "block_rows", "block_cols"])
def hopper_threshold_kernel(
    TILE_MAXIMA, LSE, BLOCKS, THRESHOLD, WANTED, BLOCK_MAXIMA, scale, q_len, heads, plane_stride,
    first_row, rows, lines, block_rows, block_cols,
    TOP: gl.constexpr, HAS_BLOCK_MAXIMA: gl.constexpr, CLASSES: gl.constexpr, GRAIN: gl.constexpr,
    BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, LINES: gl.constexpr,
):
# fmt: on
    """`threshold_kernel` and `wanted_tiles_kernel` for BITS queries of a band and at most LINES tiles.

    BLOCK_MAXIMA must be 0; weights are stored as integers, which have the same order because weights are not
    negative.
    """
    gl.static_assert((CLASSES == BITS) & (TOP <= 8))
    warps: gl.constexpr = gl.num_warps()
    # A thread holds four adjacent tiles. They are skipped if the queries visit none of them.
    GROUP: gl.constexpr = 16 * warps
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0])
    by_line: gl.constexpr = gl.SliceLayout(1, layout)
    by_row: gl.constexpr = gl.SliceLayout(0, layout)
    two_by_row: gl.constexpr = gl.SliceLayout(
        0, gl.BlockedLayout([1, 4, 2], [4, 8, 1], [warps, 1, 1], [2, 1, 0]))  # fmt: skip
    # Four threads per row and four warps in all; with eight warps, the others repeat the work.
    ranking: gl.constexpr = gl.BlockedLayout([8, 1], [4, 8], [warps // 4, 4], [0, 1])
    alone: gl.constexpr = gl.BlockedLayout([1], [32], [warps], [0])
    at_map = gl.program_id(1).to(gl.int64)
    first_row += gl.program_id(0) * BITS
    run = BLOCKS + first_row // BLOCK_Q * 4
    # The whole program waits for this result, and a division is slow.
    if plane_stride > 0:
        run += at_map // heads * plane_stride * 4
    first, stop = gl.load(run) * (BLOCK_K // GRAIN), gl.load(run + 1) * (BLOCK_K // GRAIN)
    row = first_row + gl.arange(0, BITS, gl.SliceLayout(0, ranking))
    lse = gl.load(LSE + at_map * q_len + row, mask=row < q_len, other=float("-inf"))
    in_word, in_group = gl.arange(0, BITS, by_row), gl.arange(0, GROUP, by_line)
    # Four queries are read at once, always of whole words. Words past the last row are never read.
    words = rows // BITS
    TILE_MAXIMA += at_map * lines * (words * BITS) + gl.program_id(0) * BITS
    at = TILE_MAXIMA + (in_group[:, None] * (words * BITS) + in_word[None, :])
    groups = ()
    for start in gl.static_range(0, LINES, GROUP):
        x = gl.full([GROUP, BITS], float("-inf"), gl.float32, layout)
        if (start < stop) & (start + GROUP > first):
            # As unsigned numbers, lines before the first are far past the last.
            visited = (in_group + start - first).to(gl.uint32) < (stop - first).to(gl.uint32)
            visited = visited[:, None] & (in_word >= 0)[None, :]
            x = gl.load(at + (words * (BITS * start)).to(gl.int64), mask=visited, other=float("-inf"))
        groups += (x,)
    class_maxima = _class_maxima(groups[0], CLASSES)  # (CLASSES, BITS)
    for start in gl.static_range(GROUP, LINES, GROUP):
        class_maxima = gl.maximum(class_maxima, _class_maxima(groups[start // GROUP], CLASSES))

    # Masked scores are far below all others: a row that would need one for its threshold gets the lowest.
    ranked = gl.convert_layout(class_maxima, ranking)
    threshold = gl.maximum(kth_largest(ranked, TOP), gl.max(ranked, 0) + FAINTEST)
    alive = lse > float("-inf")
    lse2 = gl.where(alive, lse, float("inf")) * LOG2E
    threshold -= SLACK * (gl.abs(threshold) + gl.abs(lse2) + FARTHEST)
    threshold = gl.where(alive & (threshold > float("-inf")), threshold, float("inf"))
    gl.store(THRESHOLD + at_map * q_len + row, threshold / (scale * LOG2E), mask=row < q_len)

    # Dead rows get a NaN threshold: every comparison with it is False.
    below = gl.where(threshold < float("inf"), _just_below(threshold), float("nan"))
    # One reduction for both, because each makes the warps wait for each other.
    below, offset = gl.split(gl.convert_layout(gl.join(below, -lse2), two_by_row))
    below = gl.convert_layout(below, by_row)[None, :]
    offset = gl.convert_layout(offset, by_row)[None, :]
    block = first_row // GRAIN
    WANTED += at_map * lines * words + gl.program_id(0)
    BLOCK_MAXIMA += (at_map * block_rows + block) * block_cols
    # Eight threads hold the same four tiles; every other one of them stores the result of one tile.
    place = (in_word // 4)[None, :]
    stores = place % 2 == 0
    own = (in_group % (4 * warps))[:, None] + place // 2 * (4 * warps)  # (GROUP, BITS)
    for start in gl.static_range(0, LINES, GROUP):
        x, mine = groups[start // GROUP], start + own
        if (start < stop) & (start + GROUP > first):
            store_tile_bits(x, below, place, stores & (mine < lines), WANTED + mine * words)
            if HAS_BLOCK_MAXIMA:
                store_block_maxima(x, offset, place, stores & (mine < block_cols) & (block < block_rows),
                BLOCK_MAXIMA + mine)
        else:
            line = start + gl.arange(0, GROUP, alone)
            gl.store(WANTED + line * words, 0, mask=line < lines)
