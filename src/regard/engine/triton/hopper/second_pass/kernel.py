"""The second pass for Hopper: columns, diagonals and pooled blocks, in one sweep.

Grid: (maps, strips). One program walks down a strip of six diagonals of 64 × 64 blocks (four with small
pooled blocks), two per warpgroup; each step loads one block of queries and one of keys. In: q, k, lse2, the
strips. Out: partial column sums, partial diagonal sums, pooled blocks; the kernels of `reduction.py` add up
the first two.

A warpgroup reduces one block while the tensor cores compute the product of its next one. Blocks are
transposed (keys × queries), so a thread can sum its cells per key and along diagonals without communication.
Shuffles are slow while products run, so their results are used one step later. The order of every sum is
fixed.
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
    warpgroup_mma_wait,
)

from regard.engine.triton.hopper.gluon_compat import async_load, barrier
from regard.engine.triton.hopper.ring import (
    LOG2E,
    acquire,
    barriers,
    dot_transposed,
    line_ring,
    release,
    ring,
)
from regard.engine.triton.hopper.second_pass.diagonals import (
    PARTIALS,
    add_diagonals,
    diagonals_at_first,
    store_diagonals,
)
from regard.engine.triton.hopper.second_pass.masking import mask_block
from regard.engine.triton.hopper.second_pass.pooling import (
    Overview,
    before_first_exp,
    before_second_exp,
    finish,
    fold_first,
    fold_second,
    initial_state,
    sums_of,
    valid_blocks,
)
from regard.engine.triton.hopper.thread_columns import sum_by_thread
from regard.engine.triton.hopper.thread_ops import exchange, force_now, receive

__all__ = ["hopper_second_pass_kernel"]

MASKED = gl.constexpr(-1e37)
SIDE = gl.constexpr(64)
# Rows (keys) of a block that one warp holds: the largest height of pooled blocks computed in the kernel.
BY_WARP = gl.constexpr(16)
# Slots for blocks of queries and of keys in shared memory. A step reads one block of queries and two blocks
# of keys per warpgroup, while the next step's blocks are loaded.
Q_RING, K_RING = gl.constexpr(2), gl.constexpr(8)


@gluon.jit
def _load(common, WARPGROUPS: gl.constexpr):
    """The loading warp: load all key blocks of the first step, then one block of queries and one of keys per
    step."""
    Q, K, LSE2 = common[0]
    q_ring, k_ring, lse2_ring, loaded = common[1]
    batch, head, kv_head, map_at, q_first, k_first, count = common[2]
    more: gl.constexpr = Q.block_type.nbytes + K.block_type.nbytes + LSE2.block_type.nbytes
    ahead: gl.constexpr = 2 * WARPGROUPS - 1
    if count > 0:
        mbarrier.expect(loaded.index(0), more + ahead * K.block_type.nbytes)
        for m in gl.static_range(ahead):
            row = (k_first + m) * SIDE
            async_load(K, [batch, kv_head, row, 0], loaded.index(0), k_ring.index(m))
    for i in range(count):
        at = i & (Q_RING - 1)
        # Wait until every warpgroup has finished the step whose slots this one overwrites.
        acquire(at, WARPGROUPS)
        # A predicate instead of a branch: with a branch the compiler would split the loop, and the loading
        # warp has few registers.
        mbarrier.expect(loaded.index(at), more, pred=i > 0)
        row, k_row = (q_first + i) * SIDE, (k_first + i + ahead) * SIDE
        async_load(Q, [batch, head, row, 0], loaded.index(at), q_ring.index(at))
        slot = k_ring.index((i + ahead) & (K_RING - 1))
        async_load(K, [batch, kv_head, k_row, 0], loaded.index(at), slot)
        async_load(LSE2, [map_at, row], loaded.index(at), lse2_ring.index(at))


@gluon.jit
def _walk(
    common,
    overview,
    which: gl.constexpr,
    COLUMNS: gl.constexpr,
    DIAGONALS: gl.constexpr,
    WARPGROUPS: gl.constexpr,
):
    """One warpgroup: diagonals 2 `which` and 2 `which` + 1 of the strip. Pointers point at this head's rows.

    Blocks (SIDE keys, SIDE queries): `s` and `t` are the scores of the first and second block of a step, `p`
    and `r` their weights.
    """
    q_ring, k_ring, lse2_ring, loaded = common[0]
    LOW, HIGH, EDGES, COLUMN, CELLS = common[1]
    q_first, k_first, count, band_first, row_stop, k_blocks, c = common[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIDE, 16])
    queries: gl.constexpr = gl.SliceLayout(0, layout)
    zeros = gl.full([SIDE, SIDE], 0.0, gl.float32, layout)
    diagonals = diagonals_at_first(zeros)
    masked = MASKED / c
    # Four threads share two keys of each block; each of them stores one column sum.
    kept = sum_by_thread(zeros, SIDE)
    given = kept
    shared: gl.constexpr = kept.type.layout
    key = gl.arange(0, SIDE, gl.SliceLayout(1, shared))[:, None]
    neighbour = gl.arange(0, 4, gl.SliceLayout(0, shared))[None, :] + key * 0
    place = (key >> 4) * 16 + (key & 7) + (neighbour >> 1) * 8 + (neighbour & 1) * SIDE
    # The address advances by the same amount each step; it starts one step early.
    band_row = q_first - band_first - 1
    onward = (k_blocks + 1) * SIDE
    received = COLUMN + (band_row.to(gl.int64) * k_blocks + k_first + 2 * which - 1) * SIDE
    there = 0
    state = initial_state(zeros, overview)

    for slot in gl.static_range(Q_RING):
        release(slot, WARPGROUPS)
    if count > 0:
        mbarrier.wait(loaded.index(0), 0)
    lse2 = lse2_ring.index(0).load(queries)
    full_first, full_stop = gl.load(EDGES + q_first * 2), gl.load(EDGES + q_first * 2 + 1)
    s = dot_transposed(k_ring.index(2 * which), q_ring, 0, zeros)
    # Without this barrier the compiler would insert one before the wait in the loop.
    barrier()
    for i in range(count):
        m = i + 2 * which
        at = i & (Q_RING - 1)
        q_block, k_block = q_first + i, k_first + m
        in_band = q_block - band_first
        first = k_block * SIDE
        s = warpgroup_mma_wait(0, deps=[s])
        t = dot_transposed(k_ring.index((m + 1) & (K_RING - 1)), q_ring, at, zeros)
        s = mask_block(s, q_block * SIDE, first, full_first, full_stop, row_stop, LOW, HIGH, masked)
        state = before_first_exp(state, overview)
        p = gl.exp2(s * c - lse2[None, :])
        if DIAGONALS:
            diagonals = add_diagonals(diagonals, p, 0)
        if COLUMNS:
            receive(kept, given, neighbour, place, there, received)
        # The exponentials overlap the product just issued. Without `force_now` the assembler would move them
        # past the wait for it.
        p_sums = sums_of(p, overview, shared)
        force_now(p_sums, EDGES)
        state = fold_first(state, p, i, in_band, k_block, overview)
        # The last step has no next one: it issues its own first product again, which is never read.
        after = gl.minimum(i + 1, count - 1)
        later = after & (Q_RING - 1)
        next_first = gl.load(EDGES + (q_first + after) * 2)
        next_stop = gl.load(EDGES + (q_first + after) * 2 + 1)
        mbarrier.wait(loaded.index(later), (after // Q_RING) & 1)
        t = warpgroup_mma_wait(0, deps=[t])
        release(at, WARPGROUPS)
        s = dot_transposed(k_ring.index((after + 2 * which) & (K_RING - 1)), q_ring, later, zeros)
        t = mask_block(t, q_block * SIDE, first + SIDE, full_first, full_stop, row_stop, LOW, HIGH, masked)
        state = before_second_exp(state, overview)
        r = gl.exp2(t * c - lse2[None, :])
        # Loaded here and not earlier, because the log-sum-exps of two steps would need too many registers.
        next_lse2 = lse2_ring.index(later).load(queries)
        if DIAGONALS:
            diagonals = add_diagonals(diagonals, r, 1)
        if COLUMNS:
            there = valid_blocks(k_block, k_blocks)
            received += onward
            kept, given = exchange(p_sums, sums_of(r, overview, shared), neighbour)
        state = fold_second(state, p, r, in_band, k_block, overview)
        lse2, full_first, full_stop = next_lse2, next_first, next_stop
    s = warpgroup_mma_wait(0, deps=[s])
    if COLUMNS:
        receive(kept, given, neighbour, place, there, received)
    last = count - 1
    finish(state, last, q_first - band_first + last, k_first + 2 * which + last, overview)
    if DIAGONALS:
        store_diagonals(diagonals, CELLS + which * PARTIALS)


# fmt: off
@gluon.jit(do_not_specialize=[
    "q_len", "heads", "group", "strips", "strip_stride", "edge_stride", "band_first", "row_stop", "slots",
    "k_blocks", "pool_rows", "pools_across"])
def hopper_second_pass_kernel(
    Q, K, LSE2, LOW, HIGH, EDGES, STRIPS, COLUMN, CELLS, POOL_SUM, POOL_MAX,
    mask_b, mask_h, scale, q_len, heads, group, strips, strip_stride, edge_stride, band_first, row_stop,
    slots, k_blocks, pool_rows, pools_across,
    DIM: gl.constexpr, COLUMNS: gl.constexpr,
    DIAGONALS: gl.constexpr, SUMS: gl.constexpr, MAXIMA: gl.constexpr, POOL_Q: gl.constexpr,
    POOL_K: gl.constexpr, WARPGROUPS: gl.constexpr,
):
# fmt: on
    """One program: one strip of one head's map, over the query blocks of a band that it crosses.

    Q, K, LSE2: TMA descriptors. LOW, HIGH, EDGES: the mask's intervals per row and per block. STRIPS:
    (planes, strips, 3), see `Strips`. COLUMN: (maps, blocks of the band, keys). CELLS: (maps, strips,
    warpgroups, PARTIALS). POOL_SUM, POOL_MAX: (maps, pool_rows, pools_across).
    """
    # Strips are sorted longest first, over all maps.
    head, batch = gl.program_id(0) % heads, gl.program_id(0) // heads
    strip = STRIPS + batch * strip_stride + gl.program_id(1) * 3
    q_first, count = gl.load(strip), gl.load(strip + 1)
    k_first = q_first + gl.load(strip + 2)
    q_tma, q_ring = ring(Q, Q_RING, SIDE, DIM)
    k_tma, k_ring = ring(K, K_RING, SIDE, DIM)
    lse2_tma, lse2_ring = line_ring(LSE2, Q_RING, SIDE)
    loaded = barriers(Q_RING, 1)
    fence_async_shared()

    map_at = gl.program_id(0).to(gl.int64)
    mask_at = batch * mask_b + head * mask_h
    LOW += mask_at
    HIGH += mask_at
    EDGES += batch * edge_stride
    COLUMN += map_at * slots * k_blocks * SIDE
    CELLS += (map_at * strips + gl.program_id(1)) * (WARPGROUPS * PARTIALS)
    POOL_SUM += map_at * pool_rows * pools_across
    POOL_MAX += map_at * pool_rows * pools_across
    pooled = (POOL_SUM, POOL_MAX, pools_across, k_blocks)
    loading = (
        (Q, K, LSE2),
        (q_tma, k_tma, lse2_tma, loaded),
        (batch, head, head // group, gl.program_id(0), q_first, k_first, count),
    )
    shared = (
        (q_ring, k_ring, lse2_ring, loaded),
        (LOW, HIGH, EDGES, COLUMN, CELLS),
        (q_first, k_first, count, band_first, row_stop, k_blocks, scale * LOG2E),
    )
    # Each call builds its own Overview: assigned to a variable, its sizes would not stay compile-time
    # constants.
    if WARPGROUPS == 3:
        gl.warp_specialize(
            [
                (_walk, (shared, Overview(SUMS, MAXIMA, POOL_Q, POOL_K, *pooled), 0, COLUMNS, DIAGONALS, 3)),
                (_walk, (shared, Overview(SUMS, MAXIMA, POOL_Q, POOL_K, *pooled), 1, COLUMNS, DIAGONALS, 3)),
                (_walk, (shared, Overview(SUMS, MAXIMA, POOL_Q, POOL_K, *pooled), 2, COLUMNS, DIAGONALS, 3)),
                (_load, (loading, 3)),
            ],
            [4, 4, 1],
            [160, 160, 32],
        )
    else:
        gl.warp_specialize(
            [
                (_walk, (shared, Overview(SUMS, MAXIMA, POOL_Q, POOL_K, *pooled), 0, COLUMNS, DIAGONALS, 2)),
                (_walk, (shared, Overview(SUMS, MAXIMA, POOL_Q, POOL_K, *pooled), 1, COLUMNS, DIAGONALS, 2)),
                (_load, (loading, 2)),
            ],
            [4, 1],
            [240, 24],
        )
