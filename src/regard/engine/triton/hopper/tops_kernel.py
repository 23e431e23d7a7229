"""From the largest scores of tiles to overviews of them and to every row's heaviest keys.

The forward pass leaves behind the largest score that each query has in each tile. A query's heaviest keys lie
in the few tiles with the largest of them, and only these are looked at again: queries that want the same tile
are gathered, and multiplied with it.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["candidates_kernel", "select_kernel", "tops_kernel", "wanted_kernel"]

LOG2E = tl.constexpr(1.4426950408889634)
# Should a product round a score otherwise than the forward pass, it is still found.
SLACK = tl.constexpr(1e-6)
# Keys of less weight than this power of two are searched for one by one.
FAINTEST = tl.constexpr(-120.0)
# Bits of a word, of which a row has some for the keys of a tile.
BITS = tl.constexpr(32)


# fmt: off
@triton.jit(do_not_specialize=[
    "q_len", "heads", "plane_stride", "first_row", "rows", "lines", "high", "wide", "redo_blocks"])
def tops_kernel(
    TILE_TOPS, LSE, BLOCKS, MARK, REDO, HIGH, scale, q_len, heads, plane_stride, first_row, rows, lines, high,
    wide, redo_blocks,
    TOP: tl.constexpr, HIGHEST: tl.constexpr, CLASSES: tl.constexpr, GRAIN: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SIDE: tl.constexpr,
):
# fmt: on
    """What follows from the largest score of each row's GRAIN keys, for a block of queries of a band: the
    largest weight of each block of GRAIN × GRAIN cells, and the least score that a key of the TOP may have.

    BLOCKS says which tiles a block of queries visited. Every CLASSES-th of them is of one class, and the
    TOP-th largest of a row's class maxima is no more than the TOP-th largest of its scores. Rows that see too
    few classes, or hardly anything of some, are searched with their block of SIDE queries afterwards: REDO.
    Of these and of dead rows no score is above the mark.
    """
    at_map = tl.program_id(1).to(tl.int64)
    in_band = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row = first_row + in_band
    there = row < q_len
    run = BLOCKS + (at_map // heads * plane_stride + first_row // BLOCK_Q + tl.program_id(0)) * 4
    first, stop = tl.load(run) * (BLOCK_K // GRAIN), tl.load(run + 1) * (BLOCK_K // GRAIN)
    lse = tl.load(LSE + at_map * q_len + row, mask=there, other=float("-inf"))
    alive = lse > float("-inf")
    bound = tl.where(alive, lse, float("inf")) * LOG2E
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
    if TOP > 0:
        for _ in range(TOP - 1):
            # Of equal ones all go, and the mark is lower than it need be.
            tops = tl.where(tops == tl.max(tops, 1)[:, None], float("-inf"), tops)
        mark = tl.max(tops, 1)
        few = (mark * (scale * LOG2E) < bound + FAINTEST) & alive
        mark -= SLACK * (tl.abs(mark) + tl.abs(bound) / (scale * LOG2E))
        mark = tl.where(alive & (mark > float("-inf")) & ~few, mark, float("inf"))
        tl.store(MARK + at_map * q_len + row, mark, mask=there)
        unsure = tl.max(tl.reshape(few.to(tl.int32), [BLOCK_Q // SIDE, SIDE]), 1)
        side = (first_row + tl.program_id(0) * BLOCK_Q) // SIDE + tl.arange(0, BLOCK_Q // SIDE)
        tl.store(REDO + at_map * redo_blocks + side, unsure, mask=(unsure > 0) & (side < redo_blocks))


@triton.jit
def _lowest(bits):
    """The number of the lowest bit that is set: the exponent of a power of two as a float."""
    power = (bits & -bits).to(tl.uint64, bitcast=True).to(tl.float32)
    return (power.to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def _ones(bits):
    """How many bits of a word are set."""
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return (bits * 0x01010101 & 0xFFFFFFFF) >> 24


# fmt: off
@triton.jit(do_not_specialize=["q_len", "heads", "plane_stride", "first_row", "rows", "lines"])
def wanted_kernel(
    TILE_TOPS, MARK, BLOCKS, WANTED, q_len, heads, plane_stride, first_row, rows, lines,
    GRAIN: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, LINES: tl.constexpr,
):
# fmt: on
    """Which of a block of queries have their largest score in each of LINES tiles at or above their mark: a
    bit for each, in words of as many queries."""
    at_map = tl.program_id(1).to(tl.int64)
    run = BLOCKS + (at_map // heads * plane_stride + first_row // BLOCK_Q + tl.program_id(0)) * 4
    first, stop = tl.load(run) * (BLOCK_K // GRAIN), tl.load(run + 1) * (BLOCK_K // GRAIN)
    in_band = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row, line = first_row + in_band, tl.program_id(2) * LINES + tl.arange(0, LINES)
    mark = tl.load(MARK + at_map * q_len + row, mask=row < q_len, other=float("inf"))
    seen = ((line >= first) & (line < stop))[None, :] & (mark < float("inf"))[:, None]
    at = (at_map * lines + line)[None, :] * rows + in_band[:, None]
    top = tl.load(TILE_TOPS + at, mask=seen, other=float("-inf"))
    words: tl.constexpr = BLOCK_Q // BITS
    found = (top >= mark[:, None]) & seen
    bits = found.to(tl.int32) << (tl.arange(0, BLOCK_Q) % BITS)[:, None]
    bits = tl.sum(tl.reshape(bits, [words, BITS, LINES]), 1)
    word = tl.program_id(0) * words + tl.arange(0, words)
    to = WANTED + (at_map * lines + line)[None, :] * (rows // BITS) + word[:, None]
    tl.store(to, bits, mask=(line < lines)[None, :])


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "heads", "group", "first_row", "rows", "lines"])
def candidates_kernel(
    WANTED, NUMBERS, MARK, Q, K, LOW, HIGH, LENGTH, LIST, q_b, q_h, q_n, k_b, k_h, k_n, mask_b, mask_h,
    q_len, k_len, heads, group, first_row, rows, lines,
    DIM: tl.constexpr, PLACES: tl.constexpr, GRAIN: tl.constexpr, WORDS: tl.constexpr, GATHERED: tl.constexpr,
):
# fmt: on
    """One tile of GRAIN keys, and those queries of WORDS that want it, GATHERED at a time: every key that is
    at or above their mark, into their lists. LENGTH counts keys without a place too.

    NUMBERS is room for the numbers of these queries.
    """
    # Programs of one map run together: its queries stay near.
    at_map = (tl.program_id(0) // lines).to(tl.int64)
    line = tl.program_id(0) % lines
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    there = word < rows // BITS
    wanting = tl.load(WANTED + (at_map * lines + line) * (rows // BITS) + word, mask=there, other=0)
    wanting = wanting.to(tl.int64) & 0xFFFFFFFF
    ones = _ones(wanting).to(tl.int32)
    count = tl.sum(ones, 0)
    if count > 0:
        batch, head = at_map // heads, at_map % heads
        key, dim = line * GRAIN + tl.arange(0, GRAIN), tl.arange(0, DIM)
        k_at = K + batch * k_b + head // group * k_h + key.to(tl.int64)[None, :] * k_n + dim[:, None]
        k = tl.load(k_at, mask=(key < k_len)[None, :], other=0.0)
        NUMBERS += (at_map * lines + line) * rows + tl.program_id(1) * WORDS * BITS
        at = tl.cumsum(ones, 0) - ones
        while tl.max(ones, 0) > 0:
            tl.store(NUMBERS + at, word * BITS + _lowest(wanting), mask=ones > 0)
            wanting &= wanting - 1
            at += 1
            ones -= 1
        tl.debug_barrier()
        MARK += at_map * q_len + first_row
        Q += batch * q_b + head * q_h + first_row.to(tl.int64) * q_n
        LOW += batch * mask_b + head * mask_h + first_row
        HIGH += batch * mask_b + head * mask_h + first_row
        words: tl.constexpr = GRAIN // BITS
        some = tl.arange(0, GATHERED)
        query = tl.load(NUMBERS + some, mask=some < count, other=0)
        q_at = Q + query.to(tl.int64)[:, None] * q_n + dim[None, :]
        q = tl.load(q_at, mask=(some < count)[:, None], other=0.0)
        later = tl.load(NUMBERS + GATHERED + some, mask=GATHERED + some < count, other=0)
        for first in range(0, count, GATHERED):
            s = tl.dot(q, k)
            # The next queries come while these are looked at, and so do the numbers of those after them.
            left = count - first - some
            q_at = Q + later.to(tl.int64)[:, None] * q_n + dim[None, :]
            q = tl.load(q_at, mask=(left > GATHERED)[:, None], other=0.0)
            hit = s >= tl.load(MARK + query, mask=left > 0, other=float("inf"))[:, None]
            low = tl.load(LOW + query, mask=left > 0, other=0)[:, None]
            high = tl.load(HIGH + query, mask=left > 0, other=0)[:, None]
            row = at_map * rows + query[:, None] + tl.zeros([GATHERED, words], tl.int64)
            query = later
            later = tl.load(NUMBERS + first + 2 * GATHERED + some, mask=left > 2 * GATHERED, other=0)
            bits = hit.to(tl.int32) << (tl.arange(0, GRAIN) % BITS)[None, :]
            bits = tl.sum(tl.reshape(bits, [GATHERED, words, BITS]), 2).to(tl.int64) & 0xFFFFFFFF
            while tl.max(tl.max((bits != 0).to(tl.int32), 1), 0) > 0:
                found = line * GRAIN + tl.arange(0, words)[None, :] * BITS + _lowest(bits)
                # Beyond what a query sees keys have scores too.
                new = (bits != 0) & (found >= low) & (found < high)
                place = tl.atomic_add(LENGTH + row, 1, mask=new, sem="relaxed")
                tl.store(LIST + row * PLACES + place, found, mask=new & (place < PLACES))
                bits &= bits - 1


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
