"""The second pass for Hopper: columns, diagonals, the overview and candidates for the top keys, in one sweep.

A program walks down a strip of four diagonals of blocks, 64 by 64 cells each, two diagonals per warpgroup. At
every step one block of queries and one of keys come in, and what is read feeds four blocks of the map. The
warpgroups take turns at the matrix units: while one waits for its products the other folds what it got. A
block lies with its keys as rows: what a key receives is then a sum within a thread, and cells of one diagonal
lie on top of one another in registers. Nothing is added up in an order that could change; the only atomic
operation hands out places in the lists of candidates, which are sorted afterwards.
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

from regard.engine.triton.hopper.searching import LAST, LAST_OPERANDS, PLACES, SEARCH, SEARCH_OPERANDS
from regard.engine.triton.hopper.sharing import LOG2E, barriers, line_ring, ring

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
    Q, K, BOUND, THRESHOLD, q_ring, k_ring, bounds, thresholds, loaded, finished,
    batch, head, kv_head, map_at, q_first, k_first, count, TOP: gl.constexpr,
):
# fmt: on
    """The copy engine's driver: four blocks of keys for the first step, then one of each at every step."""
    more: gl.constexpr = Q.block_type.nbytes + K.block_type.nbytes + (1 + TOP) * BOUND.block_type.nbytes
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
        tma.async_copy_global_to_shared(BOUND, [map_at, row], loaded.index(at), bounds.index(at))
        if TOP:
            tma.async_copy_global_to_shared(THRESHOLD, [map_at, row], loaded.index(at), thresholds.index(at))


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
def _tell(
    x, p, k_block, in_block, in_band, pools_across, k_blocks, COLUMN, POOL_SUM, POOL_MAX,
    COLUMNS: gl.constexpr, SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr,
    POOL_K: gl.constexpr,
):
# fmt: on
    """What the keys of a block received, and its part of the overview."""
    inside = (k_block >= 0) & (k_block < k_blocks)
    at = (in_band * (SIDE // POOL_Q)) * pools_across + k_block * (SIDE // POOL_K)
    blocks: gl.constexpr = [SIDE // POOL_K, POOL_K, SIDE // POOL_Q, POOL_Q]
    if COLUMNS:
        to = COLUMN + (in_band.to(gl.int64) * k_blocks + k_block) * SIDE + in_block
        gl.store(to, gl.sum(p, 1), mask=inside & (in_block >= 0))
    if SUMS:
        _pool(POOL_SUM, gl.sum(gl.sum(gl.reshape(p, blocks), 3), 1), at, pools_across, inside)
    if MAXIMA and POOL_Q == SIDE and POOL_K == BY_WARP:
        # The usual overview: what a warp holds of a block, as one number.
        one, other = _halves(x)
        most = gl.exp2(gl.max(gl.max(gl.maximum(one, other), 2), 1))
        _pool(POOL_MAX, gl.expand_dims(most, 1), at, pools_across, inside)
    elif MAXIMA:
        _pool(POOL_MAX, gl.max(gl.max(gl.reshape(p, blocks), 3), 1), at, pools_across, inside)


# fmt: off
@gluon.jit
def _walk(
    q_ring, k_ring, bounds, thresholds, loaded, finished,
    LOW, HIGH, EDGES, COLUMN, CELLS, POOL_SUM, POOL_MAX, LENGTH, LIST, LIST_KEY,
    q_first, k_first, count, band_first, row_stop, k_blocks, pools_across, c, which: gl.constexpr,
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
    for i in range(count):
        m = i + 2 * which
        at = i & (Q_RING - 1)
        q_block, k_block = q_first + i, k_first + m
        mbarrier.wait(loaded.index(at), (i >> RING_BITS) & 1)
        # Its turn comes when the other is done: with this step, or with the one before.
        before = i - 1 + which
        turn = finished.index((1 - which) * Q_RING + (before & (Q_RING - 1)))
        mbarrier.wait(turn, (before >> RING_BITS) & 1)
        q = q_ring.index(at).permute((1, 0))
        s = warpgroup_mma(k_ring.index(m & (K_RING - 1)), q, nothing, use_acc=False, is_async=True)
        t = warpgroup_mma(k_ring.index((m + 1) & (K_RING - 1)), q, nothing, use_acc=False, is_async=True)
        full_first, full_stop = gl.load(EDGES + q_block * 2), gl.load(EDGES + q_block * 2 + 1)
        bound = bounds.index(at).load(queries)[None, :]
        threshold = bound
        if TOP:
            threshold = thresholds.index(at).load(queries)[None, :]
        first = k_block * SIDE
        s, t = warpgroup_mma_wait(0, deps=[s, t])
        mbarrier.arrive(finished.index(which * Q_RING + at))
        if (first < full_first) | (first + 2 * SIDE > full_stop):
            q_row = q_block * SIDE + gl.arange(0, SIDE, queries)
            there = q_row < row_stop
            low = gl.load(LOW + q_row, mask=there, other=0)[None, :]
            high = gl.load(HIGH + q_row, mask=there, other=0)[None, :]
            k_row = (first + in_block)[:, None]
            s = gl.where((k_row >= low) & (k_row < high), s, limit)
            t = gl.where((k_row + SIDE >= low) & (k_row + SIDE < high), t, limit)
        x, y = s * c - bound, t * c - bound
        if TOP:
            one, other = _halves(x)
            more, another = _halves(y)
            above, _ = _halves(gl.broadcast(threshold, x)[0])
            key, _ = _halves((first + in_block)[:, None] + gl.full([SIDE, SIDE], 0, gl.int32, layout))
            largest = gl.maximum(gl.maximum(one, other), gl.maximum(more, another))
            lengths = (LENGTH + q_block * SIDE).to(gl.int64)
            lists = (LIST + q_block.to(gl.int64) * (SIDE * PLACES * 4)).to(gl.int64)
            list_keys = (LIST_KEY + q_block.to(gl.int64) * (SIDE * PLACES)).to(gl.int64)
            found = gl.inline_asm_elementwise(
                SEARCH, SEARCH_OPERANDS,
                [largest, above, one, other, more, another, key, lengths, lists, list_keys],
                dtype=gl.int32, is_pure=False, pack=16)  # fmt: skip
        p, r = gl.exp2(x), gl.exp2(y)
        if DIAGONALS:
            left, right = left + p, right + r
        in_band = q_block - band_first
        _tell(x, p, k_block, in_block, in_band, pools_across, k_blocks, COLUMN, POOL_SUM, POOL_MAX,
              COLUMNS, SUMS, MAXIMA, POOL_Q, POOL_K)  # fmt: skip
        _tell(y, r, k_block + 1, in_block, in_band, pools_across, k_blocks, COLUMN, POOL_SUM, POOL_MAX,
              COLUMNS, SUMS, MAXIMA, POOL_Q, POOL_K)  # fmt: skip
        if TOP:
            gl.inline_asm_elementwise(
                LAST, LAST_OPERANDS, [found, lists, list_keys],
                dtype=gl.int32, is_pure=False, pack=16)  # fmt: skip
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
    Q, K, BOUND, THRESHOLD, LOW, HIGH, EDGES, STRIPS, COLUMN, CELLS, POOL_SUM, POOL_MAX, LENGTH, LIST,
    LIST_KEY,
    mask_b, mask_h, scale, q_len, heads, group, strips, strip_stride, edge_stride, band_first, row_stop,
    slots, k_blocks, pool_rows, pools_across,
    DIM: gl.constexpr, COLUMNS: gl.constexpr, TOP: gl.constexpr,
    DIAGONALS: gl.constexpr, SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr,
    POOL_K: gl.constexpr,
):
# fmt: on
    """One program: a strip of one head's map, over the query blocks of a band that meet it."""
    head, batch = gl.program_id(1), gl.program_id(2)
    strip = STRIPS + batch * strip_stride + gl.program_id(0) * 3
    q_first, count = gl.load(strip), gl.load(strip + 1)
    k_first = q_first + gl.load(strip + 2)
    q_boxes, q_ring = ring(Q, Q_RING, SIDE, DIM)
    k_boxes, k_ring = ring(K, K_RING, SIDE, DIM)
    bound_boxes, bounds = line_ring(BOUND, Q_RING, SIDE)
    threshold_boxes, thresholds = line_ring(THRESHOLD, Q_RING, SIDE)
    loaded, finished = barriers(Q_RING, 1), barriers(2 * Q_RING, 1)
    fence_async_shared()

    map_at = (batch * heads + head).to(gl.int64)
    mask_at = batch * mask_b + head * mask_h
    LOW += mask_at
    HIGH += mask_at
    EDGES += batch * edge_stride
    COLUMN += map_at * slots * k_blocks * SIDE
    CELLS += (map_at * strips + gl.program_id(0)) * (4 * SIDE * SIDE)
    POOL_SUM += map_at * pool_rows * pools_across
    POOL_MAX += map_at * pool_rows * pools_across
    # Lists are a band's, and rows are counted from the text's first.
    list_at = map_at * (slots * SIDE) - band_first * SIDE
    LENGTH += list_at
    LIST += list_at * (PLACES * 4)
    LIST_KEY += list_at * PLACES
    c = scale * LOG2E
    gl.warp_specialize(
        [
            (_walk, (
                q_ring, k_ring, bounds, thresholds, loaded, finished, LOW, HIGH, EDGES, COLUMN, CELLS,
                POOL_SUM, POOL_MAX, LENGTH, LIST, LIST_KEY, q_first, k_first, count, band_first, row_stop,
                k_blocks, pools_across, c, 0, COLUMNS, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)),
            (_walk, (
                q_ring, k_ring, bounds, thresholds, loaded, finished, LOW, HIGH, EDGES, COLUMN, CELLS,
                POOL_SUM, POOL_MAX, LENGTH, LIST, LIST_KEY, q_first, k_first, count, band_first, row_stop,
                k_blocks, pools_across, c, 1, COLUMNS, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)),
            (_load, (
                Q, K, BOUND, THRESHOLD, q_boxes, k_boxes, bound_boxes, threshold_boxes, loaded, finished,
                batch, head, head // group, batch * heads + head, q_first, k_first, count, TOP)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
