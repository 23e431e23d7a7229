"""The second pass for Hopper: columns, diagonals, the overview and candidates for the top keys, in one sweep.

A program walks down a strip of four diagonals of blocks, 64 by 64 cells each, two diagonals per warpgroup. At
every step one block of queries and one of keys come in, and what is read feeds four blocks of the map. While
one warpgroup waits for its products the other folds what it got. Products keep shared memory busy, and nobody
waits for what else comes through it: marks are loaded a step ahead, and what threads tell one another is
added up a step later. A block lies with its keys as rows: what a key receives is then a sum within a thread,
and cells of one diagonal lie on top of one another in registers. Nothing is added up in an order that could
change. Keys that may be among a query's heaviest are noted as bits, and looked at afterwards.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportPossiblyUnboundVariable=false, reportUnboundVariable=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.engine.triton.hopper.sharing import LOG2E, barriers, by_thread, line_ring, ring
from regard.engine.triton.hopper.threads import THREADS, WARPS, exchange, note, receive

__all__ = ["hopper_survey_kernel"]

NEVER = gl.constexpr(-1e37)
SIDE = gl.constexpr(64)
# Rows of a block that one warp holds: the overview's parts are a warp's.
BY_WARP = gl.constexpr(16)
# Blocks of queries and of keys in shared memory: a step needs one of the first and four of the second.
Q_RING, K_RING, RING_BITS = gl.constexpr(4), gl.constexpr(8), gl.constexpr(2)


# fmt: off
@gluon.jit
def _load(
    Q, K, MARK, FACTOR, q_ring, k_ring, marks, factors, loaded, finished,
    batch, head, kv_head, map_at, q_first, k_first, count, TOP: gl.constexpr,
):
# fmt: on
    """The copy engine's driver: four blocks of keys for the first step, then one of each at every step."""
    more: gl.constexpr = Q.block_type.nbytes + K.block_type.nbytes + (1 + TOP) * MARK.block_type.nbytes
    if count > 0:
        mbarrier.expect(loaded.index(0), more + 3 * K.block_type.nbytes)
        for m in gl.static_range(3):
            row = (k_first + m) * SIDE
            tma.async_copy_global_to_shared(K, [batch, kv_head, row, 0], loaded.index(0), k_ring.index(m))
    for i in range(count):
        at = i & (Q_RING - 1)
        # Both warpgroups are done with the step whose places this one takes.
        mbarrier.wait(finished.index(at), ((i >> RING_BITS) & 1) ^ 1)
        mbarrier.wait(finished.index(Q_RING + at), ((i >> RING_BITS) & 1) ^ 1)
        if i > 0:
            mbarrier.expect(loaded.index(at), more)
        row, k_row = (q_first + i) * SIDE, (k_first + i + 3) * SIDE
        tma.async_copy_global_to_shared(Q, [batch, head, row, 0], loaded.index(at), q_ring.index(at))
        slot = k_ring.index((i + 3) & (K_RING - 1))
        tma.async_copy_global_to_shared(K, [batch, kv_head, k_row, 0], loaded.index(at), slot)
        tma.async_copy_global_to_shared(MARK, [map_at, row], loaded.index(at), marks.index(at))
        if TOP:
            tma.async_copy_global_to_shared(FACTOR, [map_at, row], loaded.index(at), factors.index(at))


@gluon.jit
def _halves(x):
    """The two keys of a thread, eight apart: (64, 64) as two of (4, 8, 64)."""
    return gl.split(gl.permute(gl.reshape(x, [SIDE // BY_WARP, 2, 8, SIDE]), (0, 2, 3, 1)))


@gluon.jit
def _pool(POOL, part, at, across, inside):
    """Store what a block says about the overview: a part's rows are keys, the overview's are queries."""
    layout: gl.constexpr = part.type.layout
    key = gl.arange(0, part.shape[0], gl.SliceLayout(1, layout))[:, None]
    query = gl.arange(0, part.shape[1], gl.SliceLayout(0, layout))[None, :]
    gl.store(POOL + at + query * across + key, part, mask=inside & (key >= 0) & (query >= 0))


# fmt: off
@gluon.jit
def _overview(
    p, k_block, in_band, across, k_blocks, POOL_SUM, POOL_MAX,
    SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr, POOL_K: gl.constexpr,
):
# fmt: on
    """A block's part of the overview, where it is not made of what keys receive."""
    inside = (k_block >= 0) & (k_block < k_blocks)
    at = (in_band * (SIDE // POOL_Q)) * across + k_block * (SIDE // POOL_K)
    blocks: gl.constexpr = [SIDE // POOL_K, POOL_K, SIDE // POOL_Q, POOL_Q]
    if SUMS:
        _pool(POOL_SUM, gl.sum(gl.sum(gl.reshape(p, blocks), 3), 1), at, across, inside)
    if MAXIMA:
        _pool(POOL_MAX, gl.max(gl.max(gl.reshape(p, blocks), 3), 1), at, across, inside)


# fmt: off
@gluon.jit
def _walk(
    q_ring, k_ring, marks, factors, loaded, finished,
    LOW, HIGH, EDGES, COLUMN, CELLS, POOL_SUM, POOL_MAX, WARP_HITS, HITS,
    q_first, k_first, count, band_first, row_stop, k_blocks, pairs, pools_across, c, which: gl.constexpr,
    COLUMNS: gl.constexpr, TOP: gl.constexpr, DIAGONALS: gl.constexpr,
    SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr, POOL_K: gl.constexpr,
):
# fmt: on
    """One warpgroup: two of the strip's four diagonals. Pointers are at this head's."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIDE, 16])
    keys: gl.constexpr = gl.SliceLayout(1, layout)
    queries: gl.constexpr = gl.SliceLayout(0, layout)
    nothing = gl.full([SIDE, SIDE], 0.0, gl.float32, layout)
    left, right = nothing, nothing
    limit = NEVER / c
    in_block = gl.arange(0, SIDE, keys)
    if TOP:
        # A thread's place in its warpgroup: its rows say its warp and four threads of it, its columns which.
        row, _ = _halves(in_block[:, None] + gl.full([SIDE, SIDE], 0, gl.int32, layout))
        col, _ = _halves(gl.arange(0, SIDE, queries)[None, :] + gl.full([SIDE, SIDE], 0, gl.int32, layout))
        thread = (row >> 4) * 32 + (row & 7) * 4 + ((col >> 1) & 3)
    # Of four threads that share two keys of each block, each stores one.
    kept = by_thread(nothing, SIDE)
    given = kept
    shared: gl.constexpr = kept.type.layout
    key = gl.arange(0, SIDE, gl.SliceLayout(1, shared))[:, None]
    neighbour = gl.arange(0, 4, gl.SliceLayout(0, shared))[None, :] + key * 0
    place = (key >> 4) * 16 + (key & 7) + (neighbour >> 1) * 8 + (neighbour & 1) * SIDE
    # What is stored moves by as much at every step; the first is one ahead of here.
    band_row = q_first - band_first - 1
    onward = (k_blocks + 1) * SIDE
    received = COLUMN + (band_row.to(gl.int64) * k_blocks + k_first + 2 * which - 1) * SIDE
    pair_row = band_row * pairs
    there = 0

    if count > 0:
        mbarrier.wait(loaded.index(0), 0)
    mark = marks.index(0).load(queries)
    factor = mark
    if TOP:
        factor = factors.index(0).load(queries)
    full_first, full_stop = gl.load(EDGES + q_first * 2), gl.load(EDGES + q_first * 2 + 1)
    for i in range(count):
        m = i + 2 * which
        at = i & (Q_RING - 1)
        q_block, k_block = q_first + i, k_first + m
        q = q_ring.index(at).permute((1, 0))
        s = warpgroup_mma(k_ring.index(m & (K_RING - 1)), q, nothing, use_acc=False, is_async=True)
        t = warpgroup_mma(k_ring.index((m + 1) & (K_RING - 1)), q, nothing, use_acc=False, is_async=True)
        first = k_block * SIDE
        s, t = warpgroup_mma_wait(0, deps=[s, t])
        mbarrier.arrive(finished.index(which * Q_RING + at))
        if (first < full_first) | (first + 2 * SIDE > full_stop):
            q_row = q_block * SIDE + gl.arange(0, SIDE, queries)
            is_row = q_row < row_stop
            low = gl.load(LOW + q_row, mask=is_row, other=0)[None, :]
            high = gl.load(HIGH + q_row, mask=is_row, other=0)[None, :]
            k_row = (first + in_block)[:, None]
            s = gl.where((k_row >= low) & (k_row < high), s, limit)
            t = gl.where((k_row + SIDE >= low) & (k_row + SIDE < high), t, limit)
        in_band = q_block - band_first
        x, y = s * c - mark[None, :], t * c - mark[None, :]
        if TOP:
            one, other = _halves(x)
            more, another = _halves(y)
            pair_row += pairs
            pair = (pair_row + ((k_block + 1) >> 1)).to(gl.int64)
            inside = ((k_block + 1).to(gl.uint32) < k_blocks + 1).to(gl.int32)
            note(one, other, more, another, thread, inside, WARP_HITS + pair * WARPS, HITS + pair * THREADS)
        p, r = gl.exp2(x), gl.exp2(y)
        if TOP:
            p, r = p * factor[None, :], r * factor[None, :]
        if DIAGONALS:
            left, right = left + p, right + r
        # What the next step needs beside its products is loaded now: behind them it would come when they are
        # done. In another order the same lines are up to a tenth slower: the assembler schedules them worse.
        after = gl.minimum(i + 1, count - 1)
        mbarrier.wait(loaded.index(after & (Q_RING - 1)), (after >> RING_BITS) & 1)
        if TOP:
            factor = factors.index(after & (Q_RING - 1)).load(queries)
        full_first = gl.load(EDGES + (q_first + after) * 2)
        full_stop = gl.load(EDGES + (q_first + after) * 2 + 1)
        if COLUMNS:
            receive(kept, given, neighbour, place, there, received)
        mark = marks.index(after & (Q_RING - 1)).load(queries)
        if COLUMNS:
            there = (k_block.to(gl.uint32) < k_blocks).to(gl.int32)
            there += ((k_block + 1).to(gl.uint32) < k_blocks).to(gl.int32) * 2
            received += onward
            kept, given = exchange(p, r, neighbour, SIDE)
        _overview(p, k_block, in_band, pools_across, k_blocks, POOL_SUM, POOL_MAX,
                  SUMS, MAXIMA, POOL_Q, POOL_K)  # fmt: skip
        _overview(r, k_block + 1, in_band, pools_across, k_blocks, POOL_SUM, POOL_MAX,
                  SUMS, MAXIMA, POOL_Q, POOL_K)  # fmt: skip
    if COLUMNS:
        receive(kept, given, neighbour, place, there, received)
    if DIAGONALS:
        col = gl.arange(0, SIDE, queries)
        to = CELLS + which * (2 * SIDE * SIDE) + col[None, :] * (2 * SIDE) + in_block[:, None]
        gl.store(to, left)
        gl.store(to + SIDE, right)


# fmt: off
@gluon.jit(do_not_specialize=[
    "q_len", "heads", "group", "strips", "strip_stride", "edge_stride", "band_first", "row_stop", "slots",
    "k_blocks", "pool_rows", "pools_across"])
def hopper_survey_kernel(
    Q, K, MARK, FACTOR, LOW, HIGH, EDGES, STRIPS, COLUMN, CELLS, POOL_SUM, POOL_MAX, WARP_HITS, HITS,
    mask_b, mask_h, scale, q_len, heads, group, strips, strip_stride, edge_stride, band_first, row_stop,
    slots, k_blocks, pool_rows, pools_across,
    DIM: gl.constexpr, COLUMNS: gl.constexpr, TOP: gl.constexpr,
    DIAGONALS: gl.constexpr, SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr,
    POOL_K: gl.constexpr,
):
# fmt: on
    """One program: a strip of one head's map, over the query blocks of a band that meet it."""
    # The longest strips of all maps come first.
    head, batch = gl.program_id(0) % heads, gl.program_id(0) // heads
    strip = STRIPS + batch * strip_stride + gl.program_id(1) * 3
    q_first, count = gl.load(strip), gl.load(strip + 1)
    k_first = q_first + gl.load(strip + 2)
    q_boxes, q_ring = ring(Q, Q_RING, SIDE, DIM)
    k_boxes, k_ring = ring(K, K_RING, SIDE, DIM)
    mark_boxes, marks = line_ring(MARK, Q_RING, SIDE)
    factor_boxes, factors = line_ring(FACTOR, Q_RING, SIDE)
    loaded, finished = barriers(Q_RING, 1), barriers(2 * Q_RING, 1)
    fence_async_shared()

    map_at = gl.program_id(0).to(gl.int64)
    mask_at = batch * mask_b + head * mask_h
    LOW += mask_at
    HIGH += mask_at
    EDGES += batch * edge_stride
    COLUMN += map_at * slots * k_blocks * SIDE
    CELLS += (map_at * strips + gl.program_id(1)) * (4 * SIDE * SIDE)
    POOL_SUM += map_at * pool_rows * pools_across
    POOL_MAX += map_at * pool_rows * pools_across
    # Blocks of queries and of keys are met in pairs of keys' that begin at an even block or at an odd one.
    pairs = k_blocks // 2 + 1
    WARP_HITS += map_at * slots * pairs * WARPS
    HITS += map_at * slots * pairs * THREADS
    c = scale * LOG2E
    gl.warp_specialize(
        [
            (_walk, (
                q_ring, k_ring, marks, factors, loaded, finished, LOW, HIGH, EDGES, COLUMN, CELLS,
                POOL_SUM, POOL_MAX, WARP_HITS, HITS, q_first, k_first, count, band_first, row_stop,
                k_blocks, pairs, pools_across, c, 0, COLUMNS, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)),
            (_walk, (
                q_ring, k_ring, marks, factors, loaded, finished, LOW, HIGH, EDGES, COLUMN, CELLS,
                POOL_SUM, POOL_MAX, WARP_HITS, HITS, q_first, k_first, count, band_first, row_stop,
                k_blocks, pairs, pools_across, c, 1, COLUMNS, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)),
            (_load, (
                Q, K, MARK, FACTOR, q_boxes, k_boxes, mark_boxes, factor_boxes, loaded, finished,
                batch, head, head // group, gl.program_id(0), q_first, k_first, count, TOP)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
