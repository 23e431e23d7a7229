"""Small kernels around the second pass for Hopper: thresholds before it, diagonals and top keys after it."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["diagonals_kernel", "select_kernel", "threshold_kernel"]


@triton.jit(do_not_specialize=["rows"])
def threshold_kernel(TOPS, TAU, rows, K: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr):
    """The K-th largest of each row's class maxima: no more than the K-th largest of all its scores."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    place = tl.arange(0, CLASSES)[None, :]
    x = tl.load(TOPS + row.to(tl.int64)[:, None] * CLASSES + place, mask=there[:, None], other=float("-inf"))
    for _ in range(K - 1):
        first = tl.argmax(x, 1)
        x = tl.where(place == first[:, None], float("-inf"), x)
    tau = tl.max(x, 1)
    # Should the second pass round a score otherwise than the first, it still finds it.
    tl.store(TAU + row, tl.where(tau > float("-inf"), tau - tl.abs(tau) * 1e-6, tau), mask=there)


# fmt: off
@triton.jit
def _choose(
    count, there, in_band, to, CANDIDATE, CANDIDATE_AT, WEIGHT, KEY,
    K: tl.constexpr, PLACES: tl.constexpr, GROUP: tl.constexpr, SIDE: tl.constexpr, FIRST: tl.constexpr,
):
# fmt: on
    """Write the K heaviest of the candidates in the FIRST places."""
    number = tl.arange(0, FIRST * GROUP)[None, :]
    entry, inside = number // GROUP, number % GROUP
    listed = there[:, None] & (entry < count[:, None])
    group = tl.load(CANDIDATE_AT + in_band[:, None] * PLACES + entry, mask=listed, other=0)
    weight = tl.load(CANDIDATE + in_band[:, None] * (PLACES * GROUP) + number, mask=listed, other=0.0)
    # A thread holds pairs of neighbouring keys, eight keys from one another.
    key = (group // 4) * SIDE + (inside // 2) * 8 + (group % 4) * 2 + inside % 2
    for i in range(K):
        best = tl.max(weight, 1)
        first = tl.min(tl.where(weight == best[:, None], key, 2**31 - 1), 1)
        tl.store(WEIGHT + to + i, best, mask=there)
        tl.store(KEY + to + i, tl.where(best > 0, first, -1).to(tl.int64), mask=there)
        weight = tl.where(key == first[:, None], 0.0, weight)


# fmt: off
@triton.jit(do_not_specialize=["band_rows", "q_len", "first_row", "redo_blocks"])
def select_kernel(
    COUNT, CANDIDATE, CANDIDATE_AT, WEIGHT, KEY, REDO, band_rows, q_len, first_row, redo_blocks,
    K: tl.constexpr, PLACES: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, SIDE: tl.constexpr,
):
# fmt: on
    """The K heaviest of each row's candidates, heaviest first, of equal ones the earlier key first.

    Few rows use more than half of their places. A row with more candidates than places says so for its block
    of SIDE queries in REDO.
    """
    at_map = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < band_rows
    in_band = at_map * band_rows + row
    count = tl.load(COUNT + in_band, mask=there, other=0)
    to = (at_map * q_len + first_row + row) * K
    most = tl.max(count, 0)
    if most > PLACES // 2:
        _choose(count, there, in_band, to, CANDIDATE, CANDIDATE_AT, WEIGHT, KEY, K, PLACES, GROUP, SIDE,
                PLACES)  # fmt: skip
    else:
        _choose(count, there, in_band, to, CANDIDATE, CANDIDATE_AT, WEIGHT, KEY, K, PLACES, GROUP, SIDE,
                PLACES // 2)  # fmt: skip
    block = at_map * redo_blocks + (first_row + tl.program_id(0) * ROWS) // SIDE
    tl.store(REDO + block, 1, mask=most > PLACES)


@triton.jit(do_not_specialize=["heads", "strips", "half_stride", "first_half", "halves", "q_len", "length"])
def diagonals_kernel(
    CELLS, HALVES, TOTAL, heads, strips, half_stride, first_half, halves, q_len, length, SIDE: tl.constexpr
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
        known = (number >= 0) & (number < halves) & ((back == 0) | (later == 1))
        tile = tl.load(HALVES + batch * half_stride + number, mask=known, other=-1)
        c = x + r + later * SIDE - back * 2 * SIDE
        at = (at_map.to(tl.int64) * strips * 2 + tile) * (2 * SIDE * SIDE) + r * (2 * SIDE) + c
        cells = tl.load(CELLS + at, mask=(tile >= 0) & (c >= 0) & (c < 2 * SIDE), other=0.0)
        found += tl.sum(cells, 1)
    diagonal = (first_half + u) * (2 * SIDE) + later * SIDE + tl.arange(0, SIDE) + q_len - 1
    there = (diagonal >= 0) & (diagonal < length)
    to = TOTAL + at_map.to(tl.int64) * length + diagonal
    tl.store(to, tl.load(to, mask=there, other=0.0) + found, mask=there)
