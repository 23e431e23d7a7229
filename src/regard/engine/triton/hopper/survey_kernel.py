"""The second pass for Hopper: columns, diagonals, the overview and candidates for the top keys, in one sweep.

A program walks down a strip of four diagonals of blocks, 64 by 64 cells each. At every step one block of
queries and one of keys come in, and the four blocks of keys in the ring serve two warpgroups, two each: what
is read feeds twice the cells of a walk over single tiles. Cells of one diagonal lie on top of one another in
registers. What a block of keys receives waits one step for the second block of queries before threads talk
about it. Nothing is added up in an order that could change; the only atomic operation hands out places in the
lists of candidates, which are sorted afterwards.
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

__all__ = ["hopper_survey_kernel"]

LOG2E = gl.constexpr(1.4426950408889634)
NEVER = gl.constexpr(-1e37)
SIDE = gl.constexpr(64)
# Sixteen of a block's keys lie in one thread, and are one candidate.
GROUP = gl.constexpr(16)
Q_RING, K_RING = gl.constexpr(3), gl.constexpr(7)


# fmt: off
@gluon.jit
def _load(
    Q, K, q_ring, k_ring, q_ready, q_free, k_ready, k_free, batch, head, kv_head, q_first, k_first, count,
):
# fmt: on
    """The copy engine's driver: three blocks of keys ahead, then a block of each at every step."""
    for i in range(-3, count):
        m = i + 3
        slot = m % K_RING
        row = (k_first + m) * SIDE
        mbarrier.wait(k_free.index(slot), ((m // K_RING) & 1) ^ 1)
        mbarrier.expect(k_ready.index(slot), K.block_type.nbytes)
        tma.async_copy_global_to_shared(K, [batch, kv_head, row, 0], k_ready.index(slot), k_ring.index(slot))
        if i >= 0:
            at = i % Q_RING
            row = (q_first + i) * SIDE
            mbarrier.wait(q_free.index(at), ((i // Q_RING) & 1) ^ 1)
            mbarrier.expect(q_ready.index(at), Q.block_type.nbytes)
            tma.async_copy_global_to_shared(Q, [batch, head, row, 0], q_ready.index(at), q_ring.index(at))


@gluon.jit
def _by_row(x):
    """(64, 64) as (64, 4, 16): the keys of a row that one thread holds, together."""
    return gl.reshape(gl.permute(gl.reshape(x, [SIDE, 8, 4, 2]), (0, 2, 1, 3)), [SIDE, 4, GROUP])


@gluon.jit
def _pairs(x):
    """The two rows that a thread holds, added: (64, 64) to (4, 8, 64)."""
    return gl.sum(gl.reshape(x, [4, 2, 8, SIDE]), 1)


@gluon.jit
def _visible(s, first, q_row, row_stop, LOW, HIGH, full_first, full_stop, limit, layout: gl.constexpr):
    """The scores with `limit` where a query may not see a key."""
    if (first < full_first) | (first + SIDE > full_stop):
        there = q_row < row_stop
        low = gl.load(LOW + q_row, mask=there, other=0)
        high = gl.load(HIGH + q_row, mask=there, other=0)
        k_row = first + gl.arange(0, SIDE, gl.SliceLayout(0, layout))[None, :]
        s = gl.where((k_row >= low[:, None]) & (k_row < high[:, None]), s, limit)
    return s


@gluon.jit
def _pool(POOL, part, at, across, inside, TILES: gl.constexpr):
    """Store what a block says about the overview: TILES rows of it, and as many columns as there are."""
    layout: gl.constexpr = part.type.layout
    row = gl.arange(0, TILES, gl.SliceLayout(1, layout))[:, None]
    col = gl.arange(0, part.shape[1], gl.SliceLayout(0, layout))[None, :]
    gl.store(POOL + at + row * across + col, part, mask=inside & (row >= 0) & (col >= 0))


# fmt: off
@gluon.jit
def _fold(
    s, k_block, q_row, row_stop, lse, tau, full_first, full_stop, c, limit, cells,
    LOW, HIGH, COUNT, CANDIDATE, CANDIDATE_AT, POOL_SUM, POOL_MAX, pool_at, pools_across, k_blocks,
    layout: gl.constexpr, PLACES: gl.constexpr, TOP: gl.constexpr, DIAGONALS: gl.constexpr,
    SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr, POOL_K: gl.constexpr,
):
# fmt: on
    """One block of the map: its cells onto those before, its rows in pairs, its part of the overview."""
    s = _visible(s, k_block * SIDE, q_row, row_stop, LOW, HIGH, full_first, full_stop, limit, layout)
    inside = (k_block >= 0) & (k_block < k_blocks)
    # The usual overview: what a warp holds of a block, as one number.
    BY_WARP: gl.constexpr = POOL_Q == 16 and POOL_K == SIDE
    if TOP or (MAXIMA and BY_WARP):
        tops = gl.max(_by_row(s), 2)  # (64, 4)
        t_layout: gl.constexpr = tops.type.layout
        t_rows: gl.constexpr = gl.SliceLayout(1, t_layout)
    if TOP:
        hit = tops >= gl.convert_layout(tau, t_rows)[:, None]
        row = gl.convert_layout(q_row, t_rows)[:, None]
        lane = gl.arange(0, 4, gl.SliceLayout(0, t_layout))[None, :]
        one = gl.full([SIDE, 4], 1, gl.int32, t_layout)
        place = gl.atomic_add(COUNT + row + lane * 0, one, mask=hit, sem="relaxed")
    p = gl.exp2(s * c - lse[:, None])
    if DIAGONALS:
        cells = cells + p
    if TOP:
        hit = hit & (place < PLACES)
        entry = row * PLACES + place
        gl.store(CANDIDATE_AT + entry, k_block * 4 + lane + place * 0, mask=hit)
        group = _by_row(p)
        g_layout: gl.constexpr = group.type.layout
        wide: gl.constexpr = gl.SliceLayout(2, g_layout)
        key = gl.arange(0, GROUP, gl.SliceLayout(0, gl.SliceLayout(1, g_layout)))
        key = gl.expand_dims(gl.expand_dims(key, 0), 1)
        to = gl.expand_dims(gl.convert_layout(entry, wide), 2) * GROUP + key
        gl.store(CANDIDATE + to, group, mask=gl.expand_dims(gl.convert_layout(hit, wide), 2) & (key >= 0))
    two = _pairs(p)
    blocks: gl.constexpr = [SIDE // POOL_Q, POOL_Q, SIDE // POOL_K, POOL_K]
    if SUMS:
        if BY_WARP:
            part = gl.expand_dims(gl.sum(gl.sum(two, 2), 1), 1)
        else:
            part = gl.sum(gl.sum(gl.reshape(p, blocks), 3), 1)
        _pool(POOL_SUM, part, pool_at, pools_across, inside, SIDE // POOL_Q)
    if MAXIMA:
        if BY_WARP:
            most = gl.max(tops * c - gl.convert_layout(lse, t_rows)[:, None], 1)
            part = gl.expand_dims(gl.exp2(gl.max(gl.reshape(most, [4, 16]), 1)), 1)
        else:
            part = gl.max(gl.max(gl.reshape(p, blocks), 3), 1)
        _pool(POOL_MAX, part, pool_at, pools_across, inside, SIDE // POOL_Q)
    return cells, two


@gluon.jit
def _receive(two, COLUMN, slot, k_block, k_blocks, some):
    """What a block of keys received: threads trade rows for columns, add, and store."""
    turned: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 0, 1], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        [[0, 0, 2], [0, 0, 4], [0, 0, 8], [0, 0, 16], [0, 0, 32]],
        [[1, 0, 0], [2, 0, 0]],
        [],
        [4, 8, SIDE],
    )
    received = gl.sum(gl.sum(gl.convert_layout(two, turned), 1), 0)
    col = gl.arange(0, SIDE, received.type.layout)
    to = COLUMN + (slot.to(gl.int64) * k_blocks + k_block) * SIDE + col
    gl.store(to, received, mask=some & (k_block >= 0) & (k_block < k_blocks) & (col >= 0))


# fmt: off
@gluon.jit
def _walk(
    q_ring, k_ring, q_ready, q_free, k_ready, k_free,
    LSE, TAU, LOW, HIGH, EDGES, COLUMN, CELLS, POOL_SUM, POOL_MAX, COUNT, CANDIDATE, CANDIDATE_AT,
    q_first, k_first, count, band_first, row_stop, k_blocks, pools_across, c, which: gl.constexpr,
    PLACES: gl.constexpr, COLUMNS: gl.constexpr, TOP: gl.constexpr, DIAGONALS: gl.constexpr,
    SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr, POOL_K: gl.constexpr,
):
# fmt: on
    """One warpgroup: two of the strip's four diagonals. Pointers are at this head's."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIDE, 16])
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    nothing = gl.full([SIDE, SIDE], 0.0, gl.float32, layout)
    left, right = nothing, nothing
    waiting = _pairs(nothing)
    limit = NEVER / c
    ahead: gl.constexpr = 2 * which
    if which == 1:
        # The first two blocks of keys are only the other warpgroup's.
        mbarrier.arrive(k_free.index(0))
        mbarrier.arrive(k_free.index(1))
    mbarrier.wait(k_ready.index(ahead % K_RING), (ahead // K_RING) & 1)
    for i in range(count):
        m = i + ahead
        at = i % Q_RING
        q_block, k_block = q_first + i, k_first + m
        in_band = q_block - band_first
        pool_at = (in_band * (SIDE // POOL_Q)) * pools_across + k_block * (SIDE // POOL_K)
        q_row = q_block * SIDE + gl.arange(0, SIDE, rows)
        there = q_row < row_stop
        # A row that is dead or not there has lse +inf, and weight exp(s - inf) = 0 everywhere.
        lse = gl.load(LSE + q_row, mask=there, other=float("inf"))
        lse = gl.where(lse == float("-inf"), float("inf"), lse) * LOG2E
        full_first, full_stop = gl.load(EDGES + q_block * 2), gl.load(EDGES + q_block * 2 + 1)
        tau = lse
        if TOP:
            tau = gl.maximum(gl.load(TAU + q_row, mask=there, other=float("inf")), limit * 0.1)
        mbarrier.wait(q_ready.index(at), (i // Q_RING) & 1)
        q = q_ring.index(at)
        s = warpgroup_mma(q, k_ring.index(m % K_RING).permute((1, 0)), nothing, use_acc=False, is_async=True)
        beside = (m + 1) % K_RING
        phase = ((m + 1) // K_RING) & 1
        mbarrier.wait(k_ready.index(beside), phase)
        t = warpgroup_mma(q, k_ring.index(beside).permute((1, 0)), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])
        left, two = _fold(
            s, k_block, q_row, row_stop, lse, tau, full_first, full_stop, c, limit, left,
            LOW, HIGH, COUNT, CANDIDATE, CANDIDATE_AT, POOL_SUM, POOL_MAX, pool_at, pools_across, k_blocks,
            layout, PLACES, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)  # fmt: skip
        if COLUMNS:
            _receive(waiting + two, COLUMN, in_band // 2, k_block, k_blocks, count > 0)
        # Nothing to wait for: the end of a block, over which the assembler does not move the wait below.
        mbarrier.wait(k_ready.index(beside), phase)
        t = warpgroup_mma_wait(0, deps=[t])
        mbarrier.arrive(k_free.index(m % K_RING))
        mbarrier.arrive(q_free.index(at))
        right, waiting = _fold(
            t, k_block + 1, q_row, row_stop, lse, tau, full_first, full_stop, c, limit, right,
            LOW, HIGH, COUNT, CANDIDATE, CANDIDATE_AT, POOL_SUM, POOL_MAX, pool_at + SIDE // POOL_K,
            pools_across, k_blocks,
            layout, PLACES, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)  # fmt: skip
    if COLUMNS:
        slot = (q_first + count - band_first) // 2
        _receive(waiting, COLUMN, slot, k_first + count + ahead, k_blocks, count > 0)
    if DIAGONALS:
        row = gl.arange(0, SIDE, rows)[:, None]
        col = gl.arange(0, SIDE, gl.SliceLayout(0, layout))[None, :]
        to = CELLS + which * (2 * SIDE * SIDE) + row * (2 * SIDE) + col
        gl.store(to, left)
        gl.store(to + SIDE, right)


# fmt: off
@gluon.jit(do_not_specialize=[
    "q_len", "heads", "group", "strips", "strip_stride", "edge_stride", "band_first", "row_stop", "slots",
    "k_blocks", "pool_rows", "pools_across"])
def hopper_survey_kernel(
    Q, K, LSE, TAU, LOW, HIGH, EDGES, STRIPS, COLUMN, CELLS, POOL_SUM, POOL_MAX, COUNT, CANDIDATE,
    CANDIDATE_AT,
    mask_b, mask_h, scale, q_len, heads, group, strips, strip_stride, edge_stride, band_first, row_stop,
    slots, k_blocks, pool_rows, pools_across,
    DIM: gl.constexpr, PLACES: gl.constexpr, COLUMNS: gl.constexpr, TOP: gl.constexpr,
    DIAGONALS: gl.constexpr, SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr,
    POOL_K: gl.constexpr,
):
# fmt: on
    """One program: a strip of one head's map, over the query blocks of a band that meet it."""
    head, batch = gl.program_id(1), gl.program_id(2)
    strip = STRIPS + batch * strip_stride + gl.program_id(0) * 3
    q_first, count = gl.load(strip), gl.load(strip + 1)
    k_first = q_first + gl.load(strip + 2)
    dtype: gl.constexpr = K.dtype
    q_boxes = gl.allocate_shared_memory(dtype, [Q_RING, 1, 1, SIDE, DIM], Q.layout)
    k_boxes = gl.allocate_shared_memory(dtype, [K_RING, 1, 1, SIDE, DIM], K.layout)
    flat: gl.constexpr = gl.NVMMASharedLayout.get_default_for([SIDE, DIM], dtype)
    q_ring = q_boxes._reinterpret(dtype, [Q_RING, SIDE, DIM], flat)
    k_ring = k_boxes._reinterpret(dtype, [K_RING, SIDE, DIM], flat)
    q_ready = gl.allocate_shared_memory(gl.int64, [Q_RING, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [Q_RING, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [K_RING, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [K_RING, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(Q_RING):
        mbarrier.init(q_ready.index(i), count=1)
        mbarrier.init(q_free.index(i), count=2)
    for i in gl.static_range(K_RING):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
    fence_async_shared()

    map_at = (batch * heads + head).to(gl.int64)
    mask_at = batch * mask_b + head * mask_h
    LSE += map_at * q_len
    TAU += map_at * q_len
    LOW += mask_at
    HIGH += mask_at
    EDGES += batch * edge_stride
    COLUMN += map_at * slots * k_blocks * SIDE
    CELLS += (map_at * strips + gl.program_id(0)) * (4 * SIDE * SIDE)
    POOL_SUM += map_at * pool_rows * pools_across
    POOL_MAX += map_at * pool_rows * pools_across
    # Lists are a band's, and rows are counted from the text's first.
    band_rows = row_stop - band_first * SIDE
    list_at = map_at * band_rows - band_first * SIDE
    COUNT += list_at
    CANDIDATE += list_at * (PLACES * GROUP)
    CANDIDATE_AT += list_at * PLACES
    c = scale * LOG2E
    gl.warp_specialize(
        [
            (_walk, (
                q_ring, k_ring, q_ready, q_free, k_ready, k_free, LSE, TAU, LOW, HIGH, EDGES, COLUMN, CELLS,
                POOL_SUM, POOL_MAX, COUNT, CANDIDATE, CANDIDATE_AT, q_first, k_first, count, band_first,
                row_stop, k_blocks, pools_across, c, 0,
                PLACES, COLUMNS, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)),
            (_walk, (
                q_ring, k_ring, q_ready, q_free, k_ready, k_free, LSE, TAU, LOW, HIGH, EDGES, COLUMN, CELLS,
                POOL_SUM, POOL_MAX, COUNT, CANDIDATE, CANDIDATE_AT, q_first, k_first, count, band_first,
                row_stop, k_blocks, pools_across, c, 1,
                PLACES, COLUMNS, TOP, DIAGONALS, SUMS, MAXIMA, POOL_Q, POOL_K)),
            (_load, (
                Q, K, q_boxes, k_boxes, q_ready, q_free, k_ready, k_free, batch, head, head // group,
                q_first, k_first, count)),
        ],
        [4, 1],
        [240, 32],
    )  # fmt: skip
