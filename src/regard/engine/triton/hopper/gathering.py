"""Small kernels around the second pass for Hopper: thresholds before it, diagonals and top keys after it."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["bounds_kernel", "columns_kernel", "diagonals_kernel", "select_kernel"]

LOG2E = tl.constexpr(1.4426950408889634)
# Should the second pass round a score otherwise than the first, it still finds it.
SLACK = tl.constexpr(1e-6)


@triton.jit(do_not_specialize=["q_len"])
def bounds_kernel(
    LSE, TOPS, BOUND, THRESHOLD, scale, q_len, K: tl.constexpr, CLASSES: tl.constexpr, SIDE: tl.constexpr
):  # fmt: skip
    """For whole blocks of rows, in units of log 2: lse, and the least log weight of a key of the top K.

    The K-th largest of a row's class maxima is no more than the K-th largest of its scores. A row that is
    dead or not there has lse +inf: its weights are 0, and none of them is above the threshold.
    """
    at_map = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    there = row < q_len
    lse = tl.load(LSE + at_map * q_len + row, mask=there, other=float("-inf"))
    alive = lse > float("-inf")
    bound = tl.where(alive, lse, float("inf")) * LOG2E
    to = at_map * tl.num_programs(0) * SIDE + row
    tl.store(BOUND + to, bound)
    if K > 0:
        place = tl.arange(0, CLASSES)[None, :]
        tops = TOPS + (at_map * q_len + row)[:, None] * CLASSES + place
        x = tl.load(tops, mask=there[:, None], other=float("-inf"))
        for _ in range(K - 1):
            first = tl.argmax(x, 1)
            x = tl.where(place == first[:, None], float("-inf"), x)
        tau = tl.maximum(tl.max(x, 1) * (scale * LOG2E), -1e36)
        least = tau - bound - SLACK * (tl.abs(tau) + tl.abs(bound))
        tl.store(THRESHOLD + to, tl.where(alive, least, float("inf")))


# fmt: off
@triton.jit(do_not_specialize=["heads", "plane_stride", "band_first", "slots", "k_blocks", "k_len"])
def columns_kernel(
    COLUMN, SEEN, TOTAL, BLOCK, heads, plane_stride, band_first, slots, k_blocks, k_len,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, SIDE: tl.constexpr,
):
# fmt: on
    """One program: what a block of keys received from every block of queries, added up per key and per block.

    SEEN says which blocks of keys each block of queries sees: nobody wrote what the others received.
    """
    k_block, at_map = tl.program_id(0), tl.program_id(1).to(tl.int64)
    SEEN += (at_map // heads * plane_stride + band_first) * 2
    key = tl.arange(0, SIDE)
    total = tl.zeros([SIDE], tl.float32)
    for start in range(0, slots, 32):
        slot = start + tl.arange(0, 32)
        there = slot < slots
        first = tl.load(SEEN + slot * 2, mask=there, other=0)
        stop = tl.load(SEEN + slot * 2 + 1, mask=there, other=0)
        met = there & (k_block >= first) & (k_block < stop)
        at = ((at_map * slots + slot) * k_blocks + k_block)[:, None] * SIDE + key[None, :]
        found = tl.load(COLUMN + at, mask=met[:, None], other=0.0)  # (32, SIDE)
        if BLOCKS:
            to = BLOCK + (at_map * slots + slot) * k_blocks + k_block
            tl.store(to, tl.sum(found, 1), mask=there)
        total += tl.sum(found, 0)
    if COLUMNS:
        k_row = k_block * SIDE + key
        to = TOTAL + at_map * k_len + k_row
        tl.store(to, tl.load(to, mask=k_row < k_len, other=0.0) + total, mask=k_row < k_len)


# fmt: off
@triton.jit
def _choose(
    length, there, in_band, to, LIST, LIST_KEY, WEIGHT, KEY,
    K: tl.constexpr, PLACES: tl.constexpr, SIDE: tl.constexpr, FIRST: tl.constexpr,
):
# fmt: on
    """Write the K heaviest of the candidates in the FIRST places."""
    number = tl.arange(0, FIRST * 4)[None, :]
    entry = number // 4
    listed = there[:, None] & (entry < length[:, None])
    at = in_band[:, None] * PLACES + entry
    # Four keys, two of each of two blocks, eight apart, and the logarithms of their weights.
    key = tl.load(LIST_KEY + at, mask=listed, other=0) + number % 2 * 8 + number // 2 % 2 * SIDE
    weight = tl.exp2(tl.load(LIST + at * 4 + number % 4, mask=listed, other=float("-inf")))
    for i in range(K):
        best = tl.max(weight, 1)
        first = tl.min(tl.where(weight == best[:, None], key, 2**31 - 1), 1)
        tl.store(WEIGHT + to + i, best, mask=there)
        tl.store(KEY + to + i, tl.where(best > 0, first, -1).to(tl.int64), mask=there)
        weight = tl.where(key == first[:, None], 0.0, weight)


# fmt: off
@triton.jit(do_not_specialize=["band_rows", "list_rows", "q_len", "first_row", "redo_blocks"])
def select_kernel(
    LENGTH, LIST, LIST_KEY, WEIGHT, KEY, REDO, band_rows, list_rows, q_len, first_row, redo_blocks,
    K: tl.constexpr, PLACES: tl.constexpr, ROWS: tl.constexpr, SIDE: tl.constexpr,
):
# fmt: on
    """The K heaviest of each row's candidates, heaviest first, of equal ones the earlier key first.

    Few rows use more than half of their places. A row with more candidates than places says so for its block
    of SIDE queries in REDO.
    """
    at_map = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < band_rows
    in_band = at_map * list_rows + row
    length = tl.load(LENGTH + in_band, mask=there, other=0)
    to = (at_map * q_len + first_row + row) * K
    most = tl.max(length, 0)
    if most > PLACES // 2:
        _choose(length, there, in_band, to, LIST, LIST_KEY, WEIGHT, KEY, K, PLACES, SIDE, PLACES)
    else:
        _choose(length, there, in_band, to, LIST, LIST_KEY, WEIGHT, KEY, K, PLACES, SIDE, PLACES // 2)
    block = at_map * redo_blocks + (first_row + tl.program_id(0) * ROWS) // SIDE
    tl.store(REDO + block, 1, mask=most > PLACES)


@triton.jit(do_not_specialize=["heads", "tiles", "plane_stride", "first", "pairs", "q_len", "length"])
def diagonals_kernel(
    CELLS, PAIRS, TOTAL, heads, tiles, plane_stride, first, pairs, q_len, length, SIDE: tl.constexpr
):  # fmt: skip
    """Add what strips left behind along its diagonals, SIDE of them per program.

    A tile of SIDE queries and 2 SIDE keys that begins at key - query = 2 SIDE u holds diagonals from there:
    the first SIDE of them whole, the next SIDE together with the tile after it.
    """
    at_map = tl.program_id(1)
    batch = at_map // heads
    # The first tile's lower corner is on diagonals before its own.
    u = tl.program_id(0) // 2 - 1
    later = tl.program_id(0) % 2
    x = tl.arange(0, SIDE)[:, None]
    r = tl.arange(0, SIDE)[None, :]
    found = tl.zeros([SIDE], tl.float32)
    for back in tl.static_range(2):
        number = u + back
        known = (number >= 0) & (number < pairs) & ((back == 0) | (later == 1))
        tile = tl.load(PAIRS + batch * plane_stride + number, mask=known, other=-1)
        c = x + r + later * SIDE - back * 2 * SIDE
        at = (at_map.to(tl.int64) * tiles + tile) * (2 * SIDE * SIDE) + r * (2 * SIDE) + c
        cells = tl.load(CELLS + at, mask=(tile >= 0) & (c >= 0) & (c < 2 * SIDE), other=0.0)
        found += tl.sum(cells, 1)
    diagonal = (first + u) * (2 * SIDE) + later * SIDE + tl.arange(0, SIDE) + q_len - 1
    there = (diagonal >= 0) & (diagonal < length)
    to = TOTAL + at_map.to(tl.int64) * length + diagonal
    tl.store(to, tl.load(to, mask=there, other=0.0) + found, mask=there)
