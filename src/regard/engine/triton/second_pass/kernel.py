"""The portable second pass: column sums and maxima, diagonal sums, pooled blocks and histograms of the map.

Every row's log-sum-exp is known, so the weights of a tile are exact when they are computed. Tiles are
transposed (keys × queries), so that column sums stay within a thread. A program owns one block of keys or, if
sums along diagonals are requested, walks down one diagonal of tiles: it adds the tiles cell by cell, and
`diagonal_kernel` sums only the one resulting tile along its diagonals. Each tile stores its part of the
overview at an address of its own. There are no atomics and parts are added up in a fixed order, so the same
call gives the same bits.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.tiles import (
    LN2,
    LOG2E,
    allowed,
    dot,
    edge_pairs,
    row_intervals,
    rows,
    run_bounds,
    score,
)
from regard.engine.triton.topk.best_list import empty_list, list_best, store_best

__all__ = ["diagonal_kernel", "merge_blocks_kernel", "second_pass_kernel", "top_keys_kernel"]

_LENGTHS = ["q_len", "k_len", "offset", "heads", "group", "plane_stride", "first_block", "band", "k_blocks",
            "lines", "skip", "first_line", "chunk", "weight_b", "weight_h", "bias_b", "bias_h"]  # fmt: skip
_TOP_LENGTHS = ["q_len", "k_len", "offset", "heads", "group", "plane_stride", "bias_b", "bias_h"]


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def second_pass_kernel(
    Q, K, LSE, WEIGHT, BORDERS, COLUMN, COLUMN_MAX, CELLS, POOL_SUM, POOL_MAX, ABOVE, BIAS, SLOPES,
    FULL_AT, FULL, EDGE_AT, EDGE, TILES, ORDER, LOW, HIGH, BITS,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h, weight_b, weight_h,
    scale, softcap, q_len, k_len, offset, heads, group, plane_stride, first_block, band, k_blocks, lines,
    skip,
    first_line, chunk,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    HAS_BITS: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
    COLUMNS: tl.constexpr, COLUMN_MAXIMA: tl.constexpr, WEIGHTED: tl.constexpr, DIAGONALS: tl.constexpr,
    SKIP: tl.constexpr, SUMS: tl.constexpr, MAXIMA: tl.constexpr, POOL_Q: tl.constexpr, POOL_K: tl.constexpr,
    BINS: tl.constexpr, OF_SCORE: tl.constexpr,
):
# fmt: on
    """One program: one block of keys, or one diagonal of tiles, against a band of query blocks.

    `lines` is the number of blocks or diagonals; this launch processes `chunk` of them. A tile contains
    POOL_Q × POOL_K blocks of the overview. The histogram has BINS borders. There are no COLUMN_MAXIMA with
    DIAGONALS: a diagonal of tiles has no columns of its own.
    """
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    plane = batch * plane_stride
    line = tl.load(ORDER + plane + first_line + tl.program_id(0))
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    kv_head = head // group
    BIAS += batch * bias_b + head.to(tl.int64) * bias_h
    slope = tl.load(SLOPES + head) if ALIBI else 0.0
    map_at = batch * heads + head
    q_in_block, k_in_block = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    if HAS_BITS:
        BITS += head.to(tl.int64) * mask_h

    if DIAGONALS:
        cells = tl.zeros([BLOCK_K, BLOCK_Q], tl.float32)
    else:
        k = rows(K, batch, kv_head, line * BLOCK_K, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH, True, TMA)
        column = tl.zeros([BLOCK_K], tl.float32)
        column_max = tl.zeros([BLOCK_K], tl.float32)
    above = tl.zeros([BINS], tl.int32)

    for IS_EDGE in tl.static_range(2):
        AT = EDGE_AT if IS_EDGE else FULL_AT
        RUN = EDGE if IS_EDGE else FULL
        for run in range(tl.load(AT + plane + line), tl.load(AT + plane + line + 1)):
            start, stop = run_bounds(RUN, run, IS_EDGE)
            for j in range(start, stop):
                if DIAGONALS:
                    k_block, in_band = j, j - line + band - 1
                    k = rows(K, batch, kv_head, k_block * BLOCK_K, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH,
                             True, TMA)
                else:
                    k_block, in_band = line, j
                q_first = (first_block + in_band) * BLOCK_Q
                q_row, k_row = q_first + q_in_block, k_block * BLOCK_K + k_in_block
                there = q_row < q_len
                q = rows(Q, batch, head, q_first, q_b, q_h, q_n, q_len, DIM, BLOCK_Q, WIDTH, True, TMA)
                # Dead rows and rows past the last have lse +inf, and weight exp(s - inf) = 0 everywhere.
                lse = tl.load(LSE + map_at * q_len + q_row, mask=there, other=float("inf")) * LOG2E
                s = score(dot(k, tl.trans(q)), q_row[None, :], k_row[:, None], scale, softcap, offset, slope,
                          BIAS, bias_q, bias_k, q_len, k_len, HAS_BIAS, ALIBI, SOFTCAP)  # (BLOCK_K, BLOCK_Q)
                x = s * (scale * LOG2E) - lse[None, :] if LINEAR else s - lse[None, :]
                if IS_EDGE:
                    tile, low, high = run, q_row, q_row
                    if HAS_BITS:
                        tile = tl.load(TILES + tl.load(EDGE + run * 3 + 2) + j - start)
                    else:
                        at = batch * mask_b + head * mask_h + q_row
                        low = tl.load(LOW + at, mask=there, other=0)
                        high = tl.load(HIGH + at, mask=there, other=0)
                    keep = allowed(q_row[None, :], k_block, k_row[:, None], low[None, :], high[None, :],
                                   BITS, tile,
                                   q_in_block[None, :], BLOCK_Q, BLOCK_K, HAS_BITS)
                    x = tl.where(keep, x, float("-inf"))
                if SKIP:
                    x = tl.where(k_row[:, None] >= skip, x, float("-inf"))
                p = tl.exp2(x)  # (BLOCK_K, BLOCK_Q): the weights themselves
                if COLUMNS:
                    if WEIGHTED:
                        weight = tl.load(WEIGHT + batch * weight_b + head * weight_h + q_row, mask=there,
                                         other=0.0)
                        received = tl.sum(p * weight[None, :], 1)
                    else:
                        received = tl.sum(p, 1)
                    if DIAGONALS:
                        place = (map_at * band + in_band) * k_blocks + k_block
                        tl.store(COLUMN + place * BLOCK_K + k_in_block, received)
                    else:
                        column += received
                if COLUMN_MAXIMA:
                    column_max = tl.maximum(column_max, tl.max(p, 1))
                if DIAGONALS:
                    cells += p
                if SUMS or MAXIMA:
                    some = tl.reshape(p, [BLOCK_K, POOL_Q, BLOCK_Q // POOL_Q])
                    pool_row, pool_col = tl.arange(0, POOL_Q)[None, :], tl.arange(0, POOL_K)[:, None]
                    across = k_blocks * POOL_K
                    to = ((map_at * band + in_band) * POOL_Q + pool_row) * across
                    to += k_block * POOL_K + pool_col
                    if SUMS:
                        part = tl.reshape(tl.sum(some, 2), [POOL_K, BLOCK_K // POOL_K, POOL_Q])
                        tl.store(POOL_SUM + to, tl.sum(part, 1))
                    if MAXIMA:
                        part = tl.reshape(tl.max(some, 2), [POOL_K, BLOCK_K // POOL_K, POOL_Q])
                        tl.store(POOL_MAX + to, tl.max(part, 1))
                if BINS > 1:
                    value = p
                    if OF_SCORE:
                        # A dead row's lse is +inf, and -inf + inf would be NaN.
                        known = tl.where(lse == float("inf"), 0.0, lse)
                        value = tl.where(there[None, :], (x + known[None, :]) * LN2, float("-inf"))
                    for bin in range(BINS):
                        hits = tl.sum((value >= tl.load(BORDERS + bin)).to(tl.int32))
                        above += tl.where(tl.arange(0, BINS) == bin, hits, 0)

    line_at = map_at * lines + line
    if COLUMNS and not DIAGONALS:
        tl.store(COLUMN + line_at * BLOCK_K + k_in_block, column)
    if COLUMN_MAXIMA:
        tl.store(COLUMN_MAX + line_at * BLOCK_K + k_in_block, column_max)
    if DIAGONALS:
        at = (map_at * chunk + tl.program_id(0)) * BLOCK_K * BLOCK_Q
        tl.store(CELLS + at + k_in_block[:, None] * BLOCK_Q + q_in_block[None, :], cells)
    if BINS > 1:
        tl.store(ABOVE + line_at * BINS + tl.arange(0, BINS), above)


@triton.jit(do_not_specialize=["heads", "plane_stride", "lines", "first_line", "chunk"])
def diagonal_kernel(
    CELLS, DIAGONAL, ORDER, heads, plane_stride, lines, first_line, chunk, BLOCK: tl.constexpr,
    STEP: tl.constexpr
):  # fmt: skip
    """One program: sum the accumulated tile of one diagonal of tiles along its own diagonals.

    Cell (key c, query c - x) lies on diagonal x of the upper half. If c < x there is no such query; then cell
    (key c, query c - x + BLOCK) lies on diagonal x of the lower half. Stored are the lower half, then the
    upper.
    """
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    line = tl.load(ORDER + batch * plane_stride + first_line + tl.program_id(0))
    map_at = batch * heads + head
    at = (map_at * chunk + tl.program_id(0)) * BLOCK * BLOCK
    x = tl.arange(0, BLOCK)
    lower = tl.zeros([BLOCK], tl.float32)
    upper = tl.zeros([BLOCK], tl.float32)
    for first in range(0, BLOCK, STEP):
        c = first + tl.arange(0, STEP)[:, None]
        cells = tl.load(CELLS + at + c * BLOCK + (c - x[None, :] + BLOCK) % BLOCK)  # (STEP, BLOCK)
        lower += tl.sum(tl.where(c < x[None, :], cells, 0.0), 0)
        upper += tl.sum(tl.where(c < x[None, :], 0.0, cells), 0)
    to = (map_at * lines + line) * 2 * BLOCK
    tl.store(DIAGONAL + to + x, lower)
    tl.store(DIAGONAL + to + BLOCK + x, upper)


# fmt: off
@triton.jit(do_not_specialize=[
    "rows", "columns", "total_rows", "total_columns", "count", "first", "high", "wide"])
def merge_blocks_kernel(
    PART, TOTAL, rows, columns, total_rows, total_columns, count, first, high, wide,
    LARGEST: tl.constexpr, BLOCKS: tl.constexpr, PARTS: tl.constexpr,
):
# fmt: on
    """One program: add parts to BLOCKS blocks of an overview, or with LARGEST take the maximum. A block has
    `high` × `wide` parts.

    PART has `rows` rows of parts, which belong to `count` rows of blocks; its first row is row `first` of the
    map's parts. PARTS parts of a row are read at a time.
    """
    at_map = (tl.program_id(0) // count).to(tl.int64)
    row = first // high + tl.program_id(0) % count
    column = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    there = column < total_columns
    to = TOTAL + (at_map * total_rows + row) * total_columns + column
    found = tl.load(to, mask=there, other=0.0)
    for part_row in range(tl.maximum(row * high, first), tl.minimum(row * high + high, first + rows)):
        for start in range(0, wide, PARTS):
            part = start + tl.arange(0, PARTS)[None, :]
            at = column[:, None] * wide + part
            here = PART + (at_map * rows + part_row - first) * columns + at
            x = tl.load(here, mask=there[:, None] & (part < wide) & (at < columns), other=0.0)
            found = tl.maximum(found, tl.max(x, 1)) if LARGEST else found + tl.sum(x, 1)
    tl.store(to, found, mask=there)


# fmt: off
@triton.jit(do_not_specialize=_TOP_LENGTHS)
def top_keys_kernel(
    Q, K, LSE, TOP_WEIGHT, TOP_KEY, BIAS, SLOPES,
    FULL_AT, FULL, EDGE_AT, EDGE, TILES, ORDER, LOW, HIGH, BITS,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, plane_stride,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    HAS_BITS: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
    TOP: tl.constexpr, TAKE: tl.constexpr,
):
# fmt: on
    """One program: the TAKE heaviest keys of each row of one block of queries, heaviest first, on ties the
    earlier key first.

    Lists hold TOP keys, TAKE rounded up to a power of two.
    """
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    plane = batch * plane_stride
    block = tl.load(ORDER + plane + tl.program_id(0))
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    kv_head = head // group
    BIAS += batch * bias_b + head.to(tl.int64) * bias_h
    slope = tl.load(SLOPES + head) if ALIBI else 0.0
    q_in_block = tl.arange(0, BLOCK_Q)
    q_row = block * BLOCK_Q + q_in_block
    there = q_row < q_len
    row_at = (batch * heads + head) * q_len + q_row
    q = rows(Q, batch, head, block * BLOCK_Q, q_b, q_h, q_n, q_len, DIM, BLOCK_Q, WIDTH, True, False)
    lse = tl.load(LSE + row_at, mask=there, other=float("inf")) * LOG2E
    lse = tl.where(lse == float("-inf"), float("inf"), lse)
    low, high, BITS = row_intervals(LOW, HIGH, BITS, batch, head, q_row, q_len, mask_b, mask_h, HAS_BITS)
    best, best_key = empty_list(BLOCK_Q, TOP)
    for IS_EDGE in tl.static_range(2):
        AT = EDGE_AT if IS_EDGE else FULL_AT
        RUN = EDGE if IS_EDGE else FULL
        for run in range(tl.load(AT + plane + block), tl.load(AT + plane + block + 1)):
            start, stop = run_bounds(RUN, run, IS_EDGE)
            for j in range(start, stop):
                k_row = j * BLOCK_K + tl.arange(0, BLOCK_K)
                k = rows(K, batch, kv_head, j * BLOCK_K, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH, IS_EDGE,
                         TMA)
                s = score(dot(q, tl.trans(k)), q_row[:, None], k_row[None, :], scale, softcap, offset, slope,
                          BIAS, bias_q, bias_k, q_len, k_len, HAS_BIAS, ALIBI, SOFTCAP)  # (BLOCK_Q, BLOCK_K)
                x = s * (scale * LOG2E) - lse[:, None] if LINEAR else s - lse[:, None]
                if IS_EDGE:
                    keep = edge_pairs(TILES, EDGE, run, start, j, q_row, k_row, low, high, BITS, q_in_block,
                                      BLOCK_Q, BLOCK_K, HAS_BITS)
                    x = tl.where(keep, x, float("-inf"))
                best, best_key = list_best(best, best_key, x, k_row)
    store_best(best, best_key, TOP_WEIGHT + row_at * TAKE, TOP_KEY + row_at * TAKE, there, TAKE)
