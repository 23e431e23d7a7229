"""Small kernels around the second pass for Hopper: lse2 before it, column and diagonal sums after it."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["lse2_kernel", "reduce_columns_kernel", "reduce_diagonals_kernel"]

LOG2E = tl.constexpr(1.4426950408889634)
# Blocks of queries whose sums for one block of keys are read at once.
SLOTS = tl.constexpr(64)


@triton.jit(do_not_specialize=["q_len"])
def lse2_kernel(LSE, LSE2, q_len, SIDE: tl.constexpr):
    """One program: the log-sum-exp of a block of rows in units of log 2, padded to whole blocks.

    Dead rows and rows past the last get lse2 +inf, so that their weights 2^(s - lse2) are 0.
    """
    at_map = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    lse = tl.load(LSE + at_map * q_len + row, mask=row < q_len, other=float("-inf"))
    to = LSE2 + at_map * tl.num_programs(0) * SIDE + row
    tl.store(to, tl.where(lse > float("-inf"), lse * LOG2E, float("inf")))


# fmt: off
@triton.jit(do_not_specialize=[
    "heads", "plane_stride", "band_first", "slots", "k_blocks", "k_len", "block_first", "block_rows",
    "before"])
def reduce_columns_kernel(
    COLUMN, SEEN, TOTAL, BLOCK, heads, plane_stride, band_first, slots, k_blocks, k_len, block_first,
    block_rows, before,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, SIDE: tl.constexpr,
):
# fmt: on
    """One program: add up the column sums of one block of keys over the band's blocks of queries, per key
    (TOTAL) and per pair of blocks (BLOCK).

    SEEN holds the range of key blocks that each block of queries sees: the sums of other blocks were never
    written. BLOCK has `block_rows` rows of blocks; this band's begin at `block_first`. TOTAL is overwritten,
    or added to if `before` is not 0.
    """
    k_block, at_map = tl.program_id(0), tl.program_id(1).to(tl.int64)
    SEEN += (at_map // heads * plane_stride + band_first) * 2
    key = tl.arange(0, SIDE)
    total = tl.zeros([SIDE], tl.float32)
    for start in range(0, slots, SLOTS):
        slot = start + tl.arange(0, SLOTS)
        there = slot < slots
        first = tl.load(SEEN + slot * 2, mask=there, other=0)
        stop = tl.load(SEEN + slot * 2 + 1, mask=there, other=0)
        met = there & (k_block >= first) & (k_block < stop)
        at = ((at_map * slots + slot) * k_blocks + k_block)[:, None] * SIDE + key[None, :]
        found = tl.load(COLUMN + at, mask=met[:, None], other=0.0)  # (SLOTS, SIDE)
        if BLOCKS:
            to = BLOCK + (at_map * block_rows + block_first + slot) * k_blocks + k_block
            tl.store(to, tl.sum(found, 1), mask=there)
        total += tl.sum(found, 0)
    if COLUMNS:
        k_row = k_block * SIDE + key
        to = TOTAL + at_map * k_len + k_row
        known = k_row < tl.where(before > 0, k_len, 0)
        tl.store(to, tl.load(to, mask=known, other=0.0) + total, mask=k_row < k_len)


@triton.jit(do_not_specialize=[
    "heads", "parts", "plane_stride", "first", "pairs", "q_len", "length", "before"])
def reduce_diagonals_kernel(
    CELLS, PAIRS, TOTAL, heads, parts, plane_stride, first, pairs, q_len, length, before,
    SIDE: tl.constexpr, PARTIALS: tl.constexpr,
):  # fmt: skip
    """One program: SIDE diagonals, summed over the partial sums that the warpgroups stored in CELLS; added to
    TOTAL if `before` is not 0.

    Part u, one warpgroup's pair of block diagonals, begins at key - query = 2 SIDE u. The first SIDE of its
    diagonals are complete in the part; the next SIDE continue in part u + 1. Each diagonal has numbers in 32
    rows of eight threads. A part has PARTIALS // 256 lines, eight queries apart; within a line the rows are
    one or 16 keys apart.
    """
    at_map = tl.program_id(1)
    batch = at_map // heads
    # Programs start one part early: a part's lower corner lies on diagonals before its first.
    u = tl.program_id(0) // 2 - 1
    later = tl.program_id(0) % 2
    x = tl.arange(0, SIDE)[:, None]
    row = tl.arange(0, 32)[None, :]
    key = row // 8 * 16 + row % 8
    found = tl.zeros([SIDE], tl.float32)
    for back in tl.static_range(2):
        number = u + back
        known = (number >= 0) & (number < pairs)
        if back == 1:
            known = known & (later == 1)
        part = tl.load(PAIRS + batch * plane_stride + number, mask=known, other=-1)
        # Relative to the first query of the first line, which is 72 before the part's own first query.
        query = key + 72 - (x + later * SIDE - back * 2 * SIDE)
        at = (at_map.to(tl.int64) * parts + part) * PARTIALS + (query >> 3) * 256 + row * 8 + (query & 7)
        there = (query >= 0) & (query < tl.where(part >= 0, PARTIALS // 32, 0))
        found += tl.sum(tl.load(CELLS + at, mask=there, other=0.0), 1)
    diagonal = (first + u) * (2 * SIDE) + later * SIDE + tl.arange(0, SIDE) + q_len - 1
    there = (diagonal >= 0) & (diagonal < length)
    to = TOTAL + at_map.to(tl.int64) * length + diagonal
    known = there & (diagonal < tl.where(before > 0, length, 0))
    tl.store(to, tl.load(to, mask=known, other=0.0) + found, mask=there)
