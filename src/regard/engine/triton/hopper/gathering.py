"""Small kernels around the second pass for Hopper: marks before it, diagonals and top keys after it."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "columns_kernel",
    "diagonals_kernel",
    "hits_kernel",
    "marks_kernel",
    "select_kernel",
    "tops_kernel",
]

LOG2E = tl.constexpr(1.4426950408889634)
# Blocks of queries whose sums for a block of keys are read together.
SLOTS = tl.constexpr(64)
# Should the second pass round a score otherwise than the first, it still finds it.
SLACK = tl.constexpr(1e-6)
# A power of two that is a number in float32, and so is the inverse.
FAINTEST = tl.constexpr(-120.0)


# fmt: off
@triton.jit(do_not_specialize=[
    "q_len", "heads", "plane_stride", "first_row", "rows", "lines", "high", "wide"])
def tops_kernel(
    TILE_TOPS, LSE, BLOCKS, CLASS_TOPS, HIGH, scale, q_len, heads, plane_stride, first_row, rows, lines, high,
    wide,
    TOPS: tl.constexpr, HIGHEST: tl.constexpr, CLASSES: tl.constexpr, GRAIN: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):
# fmt: on
    """What follows from the largest score of each row's GRAIN keys, for a block of queries of a band.

    Every CLASSES-th of them is of one class: the largest of each class for the row, and the largest weight of
    each block of GRAIN × GRAIN cells. BLOCKS says which tiles a block of queries visited.
    """
    at_map = tl.program_id(1).to(tl.int64)
    in_band = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row = first_row + in_band
    there = row < q_len
    run = BLOCKS + (at_map // heads * plane_stride + first_row // BLOCK_Q + tl.program_id(0)) * 4
    first, stop = tl.load(run) * (BLOCK_K // GRAIN), tl.load(run + 1) * (BLOCK_K // GRAIN)
    lse = tl.load(LSE + at_map * q_len + row, mask=there, other=float("-inf"))
    bound = tl.where(lse > float("-inf"), lse, float("inf")) * LOG2E
    least = -5e36 / (scale * LOG2E)
    parts: tl.constexpr = BLOCK_Q // GRAIN
    block = (first_row + tl.program_id(0) * BLOCK_Q) // GRAIN + tl.arange(0, parts)[:, None]
    tops = tl.full([BLOCK_Q, CLASSES], float("-inf"), tl.float32)
    for start in range(0, lines, CLASSES):
        line = start + tl.arange(0, CLASSES)
        visited = (line >= first) & (line < stop)
        at = (at_map * lines + line)[None, :] * rows + in_band[:, None]
        x = tl.load(TILE_TOPS + at, mask=there[:, None] & visited[None, :], other=float("-inf"))
        x = tl.where(x > least, x, float("-inf"))
        tops = tl.maximum(tops, x)
        if HIGHEST:
            weight = tl.reshape(x * (scale * LOG2E) - bound[:, None], [parts, GRAIN, CLASSES])
            to = HIGH + (at_map * high + block) * wide + line[None, :]
            tl.store(to, tl.exp2(tl.max(weight, 1)), mask=(line[None, :] < wide) & (block < high))
    if TOPS:
        to = CLASS_TOPS + (at_map * q_len + row)[:, None] * CLASSES + tl.arange(0, CLASSES)[None, :]
        tl.store(to, tops, mask=there[:, None])


@triton.jit(do_not_specialize=["q_len"])
def marks_kernel(
    LSE, TOPS, MARK, FACTOR, REDO, scale, q_len, K: tl.constexpr, CLASSES: tl.constexpr, SIDE: tl.constexpr
):  # fmt: skip
    """For whole blocks of rows, in units of log 2: the least score of a key of the top K, and what turns
    exp2(score - mark) into a weight. Without top keys the mark is lse, and weights are weights.

    The K-th largest of a row's class maxima is no more than the K-th largest of its scores. Rows that see too
    few classes, or hardly anything of some, are not searched on the way, but with their block of queries
    afterwards: REDO. A row that is dead or not there has mark +inf: its weights are 0, and none of its scores
    is above the mark.
    """
    at_map = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    there = row < q_len
    lse = tl.load(LSE + at_map * q_len + row, mask=there, other=float("-inf"))
    alive = lse > float("-inf")
    bound = tl.where(alive, lse, 0.0) * LOG2E
    mark = bound
    to = at_map * tl.num_programs(0) * SIDE + row
    if K > 0:
        tops = TOPS + (at_map * q_len + row)[:, None] * CLASSES + tl.arange(0, CLASSES)[None, :]
        x = tl.load(tops, mask=there[:, None], other=float("-inf"))
        for _ in range(K - 1):
            # Of equal ones all go, and the mark is lower than it need be.
            x = tl.where(x == tl.max(x, 1)[:, None], float("-inf"), x)
        least = tl.max(x, 1) * (scale * LOG2E)
        few = least < bound + FAINTEST
        unsure = tl.max((few & alive).to(tl.int32), 0) > 0
        tl.store(REDO + at_map * tl.num_programs(0) + tl.program_id(0), 1, mask=unsure)
        mark = tl.where(few, bound + 1, least - SLACK * (tl.abs(least) + tl.abs(bound)))
        tl.store(FACTOR + to, tl.where(alive, tl.exp2(mark - bound), 0.0))
    tl.store(MARK + to, tl.where(alive, mark, float("inf")))


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
    for start in range(0, slots, SLOTS):
        slot = start + tl.arange(0, SLOTS)
        there = slot < slots
        first = tl.load(SEEN + slot * 2, mask=there, other=0)
        stop = tl.load(SEEN + slot * 2 + 1, mask=there, other=0)
        met = there & (k_block >= first) & (k_block < stop)
        at = ((at_map * slots + slot) * k_blocks + k_block)[:, None] * SIDE + key[None, :]
        found = tl.load(COLUMN + at, mask=met[:, None], other=0.0)  # (SLOTS, SIDE)
        if BLOCKS:
            to = BLOCK + (at_map * slots + slot) * k_blocks + k_block
            tl.store(to, tl.sum(found, 1), mask=there)
        total += tl.sum(found, 0)
    if COLUMNS:
        k_row = k_block * SIDE + key
        to = TOTAL + at_map * k_len + k_row
        tl.store(to, tl.load(to, mask=k_row < k_len, other=0.0) + total, mask=k_row < k_len)


@triton.jit
def _lowest(bits):
    """The number of the lowest bit that is set: the exponent of a power of two as a float."""
    power = (bits & -bits).to(tl.uint64, bitcast=True).to(tl.float32)
    return (power.to(tl.int32, bitcast=True) >> 23) - 127


# fmt: off
@triton.jit(do_not_specialize=["maps", "words", "pairs", "list_rows", "band_first"])
def hits_kernel(
    WARP_HITS, HITS, LENGTH, LIST, maps, words, pairs, list_rows, band_first,
    PLACES: tl.constexpr, SIDE: tl.constexpr, WORDS: tl.constexpr,
):
# fmt: on
    """What warps noted in the second pass (threads.py), into the list of each query: which keys to look at.

    A word is a warp's, one of four that share a pair of blocks of keys: which of its threads have hits. Every
    word gives up one hit at a time. LENGTH counts keys without a place too.
    """
    # The first rows of a causal map have most to do for their size: those of all maps come first.
    at_map = (tl.program_id(0) % maps).to(tl.int64)
    word = tl.program_id(0) // maps * WORDS + tl.arange(0, WORDS)
    threads = tl.load(WARP_HITS + at_map * words + word, mask=word < words, other=0).to(tl.int64)
    threads &= 0xFFFFFFFF
    warp, pair = word % 4, word // 4
    slot, k_pair = pair // pairs, pair % pairs
    # Blocks of queries with an odd number meet pairs of blocks of keys that begin with one.
    first_key = (k_pair * 2 - (band_first + slot) % 2) * SIDE + warp * 16
    thread = tl.zeros([WORDS], tl.int32)
    bits = tl.zeros([WORDS], tl.int64)
    while tl.max(((threads | bits) != 0).to(tl.int32), 0) > 0:
        done = (bits == 0) & (threads != 0)
        thread = tl.where(done, _lowest(threads), thread)
        more = tl.load(HITS + (at_map * words + word) * 32 + thread, mask=done, other=0)
        bits = tl.where(done, more, bits)
        threads = tl.where(done, threads & (threads - 1), threads)
        hit, bit = bits != 0, _lowest(bits)
        bits &= bits - 1
        query = slot * SIDE + bit % 16 // 2 * 8 + thread % 4 * 2 + bit % 2
        key = first_key + bit // 32 * SIDE + bit // 16 % 2 * 8 + thread // 4
        row = at_map * list_rows + query
        place = tl.atomic_add(LENGTH + row, 1, mask=hit, sem="relaxed")
        tl.store(LIST + row * PLACES + place, key, mask=hit & (place < PLACES))


# fmt: off
@triton.jit
def _choose(
    q, length, there, in_band, to, lse, LIST, K, WEIGHT, KEY, k_n, scale,
    TOP: tl.constexpr, DIM: tl.constexpr, PLACES: tl.constexpr, FIRST: tl.constexpr, AT_ONCE: tl.constexpr,
):
# fmt: on
    """Score the candidates in the FIRST places, and write the TOP heaviest."""
    place = tl.arange(0, FIRST)[None, :]
    keys = tl.load(LIST + in_band[:, None] * PLACES + place, mask=place < length[:, None], other=-1)
    x = tl.full(keys.shape, float("-inf"), tl.float32)
    dim = tl.arange(0, DIM)
    for first in range(0, tl.minimum(tl.max(length, 0), FIRST), AT_ONCE):
        some = first + tl.arange(0, AT_ONCE)[None, :]
        listed = some < length[:, None]
        key = tl.load(LIST + in_band[:, None] * PLACES + some, mask=listed, other=0).to(tl.int64)
        k = tl.load(K + key[:, :, None] * k_n + dim, mask=listed[:, :, None], other=0.0)
        s = tl.sum(q[:, None, :] * k.to(tl.float32), 2)  # (rows, AT_ONCE)
        s = tl.where(listed, s * (scale * LOG2E) - lse[:, None], float("-inf"))
        here = place[:, :, None] == some[:, None, :]
        x = tl.maximum(x, tl.max(tl.where(here, s[:, None, :], float("-inf")), 2))
    for i in range(TOP):
        best = tl.max(x, 1)
        chosen = tl.min(tl.where(x == best[:, None], keys, 2**31 - 1), 1)
        weight = tl.exp2(best)
        tl.store(WEIGHT + to + i, weight, mask=there)
        tl.store(KEY + to + i, tl.where(weight > 0, chosen, -1).to(tl.int64), mask=there)
        x = tl.where(keys == chosen[:, None], float("-inf"), x)


# fmt: off
@triton.jit(do_not_specialize=[
    "band_rows", "list_rows", "q_len", "first_row", "redo_blocks", "heads", "group"])
def select_kernel(
    Q, K, LSE, LENGTH, LIST, WEIGHT, KEY, REDO, q_b, q_h, q_n, k_b, k_h, k_n, scale,
    band_rows, list_rows, q_len, first_row, redo_blocks, heads, group,
    TOP: tl.constexpr, DIM: tl.constexpr, PLACES: tl.constexpr, ROWS: tl.constexpr, SIDE: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
# fmt: on
    """The TOP heaviest of each row's candidates, heaviest first, of equal ones the earlier key first.

    Few rows use more than half of their places. A row with more candidates than places says so for its block
    of SIDE queries in REDO.
    """
    at_map = tl.program_id(1).to(tl.int64)
    batch, head = at_map // heads, at_map % heads
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < band_rows
    in_band, q_row = at_map * list_rows + row, first_row + row
    length = tl.load(LENGTH + in_band, mask=there, other=0)
    to = (at_map * q_len + q_row) * TOP
    lse = tl.load(LSE + at_map * q_len + q_row, mask=there, other=0.0) * LOG2E
    q_at = Q + batch * q_b + head * q_h + q_row.to(tl.int64)[:, None] * q_n + tl.arange(0, DIM)[None, :]
    q = tl.load(q_at, mask=there[:, None], other=0.0).to(tl.float32)
    K += batch * k_b + head // group * k_h
    most = tl.max(length, 0)
    if most > PLACES // 2:
        _choose(q, length, there, in_band, to, lse, LIST, K, WEIGHT, KEY, k_n, scale,
                TOP, DIM, PLACES, PLACES, AT_ONCE)  # fmt: skip
    else:
        _choose(q, length, there, in_band, to, lse, LIST, K, WEIGHT, KEY, k_n, scale,
                TOP, DIM, PLACES, PLACES // 2, AT_ONCE)  # fmt: skip
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
