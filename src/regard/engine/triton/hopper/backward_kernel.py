"""The backward for Hopper: keys gather from queries in one kernel, queries from keys in another.

One warp drives the copy engine; two warpgroups hold 64 keys, or queries, each. The last product of a tile is
put off until the next one, and is under way while that is exponentiated. Scores of keys against queries are
made turned over, so that weights are in the registers where the products with them want them.
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

__all__ = ["hopper_keys_kernel", "hopper_queries_kernel"]

LOG2E = gl.constexpr(1.4426950408889634)
HALF = gl.constexpr(64)


@gluon.jit
def _scores(a, ring, slot, nothing):
    """Issue the product with a tile turned over: (HALF, rows of the tile)."""
    return warpgroup_mma(a, ring.index(slot).permute((1, 0)), nothing, use_acc=False, is_async=True)


# fmt: off
@gluon.jit
def _load_keys(
    Q, D_OUT, K, V, q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, k_free, v_ready, v_free,
    batch, head, kv_head, q_first, first, count, BLOCK: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The copy engine's driver: queries and their gradients once, then keys and values into two rings."""
    mbarrier.expect(own_ready, Q.block_type.nbytes + D_OUT.block_type.nbytes)
    tma.async_copy_global_to_shared(Q, [batch, head, q_first, 0], own_ready, q_tile)
    tma.async_copy_global_to_shared(D_OUT, [batch, head, q_first, 0], own_ready, d_tile)
    for i in range(count):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        row = (first + i) * BLOCK
        mbarrier.wait(k_free.index(slot), phase ^ 1)
        mbarrier.expect(k_ready.index(slot), K.block_type.nbytes)
        tma.async_copy_global_to_shared(K, [batch, kv_head, row, 0], k_ready.index(slot), k_ring.index(slot))
        mbarrier.wait(v_free.index(slot), phase ^ 1)
        mbarrier.expect(v_ready.index(slot), V.block_type.nbytes)
        tma.async_copy_global_to_shared(V, [batch, kv_head, row, 0], v_ready.index(slot), v_ring.index(slot))


# fmt: off
@gluon.jit
def _unseen_keys(
    x, j, low, high, full_first, full_stop, BLOCK: gl.constexpr, layout: gl.constexpr,
):
# fmt: on
    """Tile j with 0 where a query may not see a key; nothing to do in the tiles every query sees."""
    if (j < full_first) | (j >= full_stop):
        k_row = j * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout))[None, :]
        x = gl.where((k_row >= low[:, None]) & (k_row < high[:, None]), x, 0.0)
    return x


# fmt: off
@gluon.jit
def _to_queries(
    q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, k_free, v_ready, v_free, LSE, DELTA, DQ, LOW, HIGH,
    q_first, first, count, full_first, full_stop, q_len, c, signed_scale, half: gl.constexpr,
    BLOCK: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """One warpgroup: the gradient of its half of the queries. Pointers are at this head's rows."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, d_layout, 2)
    rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    dtype: gl.constexpr = k_ring.dtype

    q_row = q_first + half * HALF + gl.arange(0, HALF, rows)
    there = q_row < q_len
    low = gl.load(LOW + q_row, mask=there, other=0)
    high = gl.load(HIGH + q_row, mask=there, other=0)
    lse = gl.load(LSE + q_row)
    delta = gl.load(DELTA + q_row)
    nothing = gl.full([HALF, BLOCK], 0.0, gl.float32, s_layout)
    dq = gl.full([HALF, DIM], 0.0, gl.float32, d_layout)

    q = q_tile.slice(half * HALF, HALF)
    d_out = d_tile.slice(half * HALF, HALF)
    mbarrier.wait(own_ready, 0)
    # What stays the same is held in registers: a tile of 64 keys is multiplied as fast as shared memory can
    # be read, and this is the half of it that need not be.
    q = q.load(gl.DotOperandLayout(0, s_layout, 2))
    d_out = d_out.load(gl.DotOperandLayout(0, s_layout, 2))
    mbarrier.wait(k_ready.index(0), 0)
    s = _scores(q, k_ring, 0, nothing)
    mbarrier.wait(v_ready.index(0), 0)
    dp = _scores(d_out, v_ring, 0, nothing)
    s, dp = warpgroup_mma_wait(0, deps=[s, dp])
    mbarrier.arrive(v_free.index(0))
    ds = gl.exp2(s * c - lse[:, None]) * (dp - delta[:, None])  # (HALF, BLOCK)
    ds = _unseen_keys(ds, first, low, high, full_first, full_stop, BLOCK, s_layout)
    weights = gl.convert_layout(ds.to(dtype), left)
    for i in range(1, count):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        before = (i - 1) % STAGES
        mbarrier.wait(k_ready.index(slot), phase)
        s = _scores(q, k_ring, slot, nothing)
        mbarrier.wait(v_ready.index(slot), phase)
        dp = _scores(d_out, v_ring, slot, nothing)
        mixed = warpgroup_mma(weights, k_ring.index(before), dq, is_async=True)
        s = warpgroup_mma_wait(2, deps=[s])
        p = gl.exp2(s * c - lse[:, None])
        # There is nothing left to wait for here. But the assembler moves the wait below up to the top of its
        # block, before what it should overlap; and this branch is where a block ends. So below.
        mbarrier.wait(v_ready.index(slot), phase)
        dp = warpgroup_mma_wait(1, deps=[dp])
        mbarrier.arrive(v_free.index(slot))
        ds = p * (dp - delta[:, None])
        ds = _unseen_keys(ds, first + i, low, high, full_first, full_stop, BLOCK, s_layout)
        mbarrier.wait(k_ready.index(slot), phase)
        dq, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
        mbarrier.arrive(k_free.index(before))
        weights = gl.convert_layout(ds.to(dtype), left)
    mixed = warpgroup_mma(weights, k_ring.index((count - 1) % STAGES), dq, is_async=True)
    dq = warpgroup_mma_wait(0, deps=[mixed])

    row = q_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, d_layout))[:, None]
    col = gl.arange(0, DIM, gl.SliceLayout(0, d_layout))[None, :]
    gl.store(DQ + row.to(gl.int64) * DIM + col, (dq * signed_scale).to(dtype), mask=row < q_len)


# fmt: off
@gluon.jit(do_not_specialize=["q_len", "rows", "heads", "group", "plane_stride"])
def hopper_queries_kernel(
    Q, K, V, D_OUT, LSE, DELTA, DQ, LOW, HIGH, BLOCKS, ORDER,
    mask_b, mask_h, scale, signed_scale, q_len, rows, heads, group, plane_stride,
    BLOCK: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """One program: the gradient of 128 queries of one head, over the run of tiles of keys that they see."""
    head, batch = gl.program_id(1), gl.program_id(2)
    block = gl.load(ORDER + batch * plane_stride + gl.program_id(0))
    bounds = BLOCKS + (batch * plane_stride + block) * 4
    first, stop = gl.load(bounds), gl.load(bounds + 1)
    full_first, full_stop = gl.load(bounds + 2), gl.load(bounds + 3)
    dtype: gl.constexpr = K.dtype
    q_box = gl.allocate_shared_memory(dtype, [1, 1, 2 * HALF, DIM], Q.layout)
    d_box = gl.allocate_shared_memory(dtype, [1, 1, 2 * HALF, DIM], D_OUT.layout)
    k_boxes = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, DIM], K.layout)
    v_boxes = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, DIM], V.layout)
    # The copy engine knows batch rows and heads as axes of length 1; the matrix units want two axes.
    flat: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK, DIM], dtype)
    q_tile = q_box._reinterpret(dtype, [2 * HALF, DIM], flat)
    d_tile = d_box._reinterpret(dtype, [2 * HALF, DIM], flat)
    k_ring = k_boxes._reinterpret(dtype, [STAGES, BLOCK, DIM], flat)
    v_ring = v_boxes._reinterpret(dtype, [STAGES, BLOCK, DIM], flat)
    own_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(own_ready, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
        mbarrier.init(v_ready.index(i), count=1)
        mbarrier.init(v_free.index(i), count=2)
    fence_async_shared()

    map_at = (batch * heads + head).to(gl.int64)
    mask_at = batch * mask_b + head * mask_h
    q_first = block * (2 * HALF)
    count = stop - first
    c = scale * LOG2E
    LSE += map_at * rows
    DELTA += map_at * rows
    DQ += map_at * q_len * DIM
    LOW += mask_at
    HIGH += mask_at
    gl.warp_specialize(
        [
            (_to_queries, (
                q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, k_free, v_ready, v_free,
                LSE, DELTA, DQ, LOW, HIGH, q_first, first, count, full_first, full_stop, q_len, c,
                signed_scale, 0, BLOCK, DIM, STAGES)),
            (_to_queries, (
                q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, k_free, v_ready, v_free,
                LSE, DELTA, DQ, LOW, HIGH, q_first, first, count, full_first, full_stop, q_len, c,
                signed_scale, 1, BLOCK, DIM, STAGES)),
            (_load_keys, (
                Q, D_OUT, K, V, q_box, d_box, k_boxes, v_boxes, own_ready, k_ready, k_free, v_ready, v_free,
                batch, head, head // group, q_first, first, count, BLOCK, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


# fmt: off
@gluon.jit
def _load_queries(
    Q, D_OUT, LSE, DELTA, K, V, k_tile, v_tile, q_ring, d_ring, lse_ring, delta_ring,
    own_ready, q_ready, q_free, d_ready, d_free, batch, head, kv_head, heads, k_first, first, stop, count,
    BLOCK: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The copy engine's driver: keys and values once, then queries with their log-sum-exp into one ring, and
    the gradients of their output with delta into another, head by head."""
    mbarrier.expect(own_ready, K.block_type.nbytes + V.block_type.nbytes)
    tma.async_copy_global_to_shared(K, [batch, kv_head, k_first, 0], own_ready, k_tile)
    tma.async_copy_global_to_shared(V, [batch, kv_head, k_first, 0], own_ready, v_tile)
    j = first
    for i in range(count):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        row = j * BLOCK
        map_at = batch * heads + head
        mbarrier.wait(q_free.index(slot), phase ^ 1)
        ready = q_ready.index(slot)
        mbarrier.expect(ready, Q.block_type.nbytes + LSE.block_type.nbytes)
        tma.async_copy_global_to_shared(Q, [batch, head, row, 0], ready, q_ring.index(slot))
        tma.async_copy_global_to_shared(LSE, [map_at, row], ready, lse_ring.index(slot))
        mbarrier.wait(d_free.index(slot), phase ^ 1)
        ready = d_ready.index(slot)
        mbarrier.expect(ready, D_OUT.block_type.nbytes + DELTA.block_type.nbytes)
        tma.async_copy_global_to_shared(D_OUT, [batch, head, row, 0], ready, d_ring.index(slot))
        tma.async_copy_global_to_shared(DELTA, [map_at, row], ready, delta_ring.index(slot))
        head += gl.where(j + 1 == stop, 1, 0)
        j = gl.where(j + 1 == stop, first, j + 1)


# fmt: off
@gluon.jit
def _unseen_queries(
    x, j, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK: gl.constexpr, layout: gl.constexpr,
):
# fmt: on
    """Tile j, turned over, with 0 where a query may not see a key; nothing to do where every query sees all.

    Ends of intervals are looked at apart: there are not registers enough for both.
    """
    if j < full_first:
        high = gl.load(HIGH + mask_at + j * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout)))
        x = gl.where(k_row[:, None] < high[None, :], x, 0.0)
    if j >= full_stop:
        low = gl.load(LOW + mask_at + j * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout)))
        x = gl.where(k_row[:, None] >= low[None, :], x, 0.0)
    return x


# fmt: off
@gluon.jit
def _to_keys(
    k_tile, v_tile, q_ring, d_ring, lse_ring, delta_ring, own_ready, q_ready, q_free, d_ready, d_free,
    DK, DV, LOW, HIGH, mask_at, mask_h, row_at, k_first, first, stop, count, full_first, full_stop, k_len,
    c, scale, half: gl.constexpr, BLOCK: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """One warpgroup: the gradients of its half of the keys and values. Pointers are at this head's rows."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, d_layout, 2)
    columns: gl.constexpr = gl.SliceLayout(0, s_layout)
    dtype: gl.constexpr = q_ring.dtype

    k_row = k_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, s_layout))
    nothing = gl.full([HALF, BLOCK], 0.0, gl.float32, s_layout)
    dk = gl.full([HALF, DIM], 0.0, gl.float32, d_layout)
    dv = gl.full([HALF, DIM], 0.0, gl.float32, d_layout)

    k = k_tile.index(0).slice(half * HALF, HALF)
    v = v_tile.index(0).slice(half * HALF, HALF)
    mbarrier.wait(own_ready, 0)
    mbarrier.wait(q_ready.index(0), 0)
    s = _scores(k, q_ring, 0, nothing)
    mbarrier.wait(d_ready.index(0), 0)
    dp = _scores(v, d_ring, 0, nothing)
    s = warpgroup_mma_wait(1, deps=[s])
    p = gl.exp2(s * c - lse_ring.index(0).load(columns)[None, :])  # (HALF, BLOCK)
    p = _unseen_queries(p, first, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
    weights = gl.convert_layout(p.to(dtype), left)
    mixed = warpgroup_mma(weights, d_ring.index(0), dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=[dp])
    ds = p * (dp - delta_ring.index(0).load(columns)[None, :])
    ds = _unseen_queries(ds, first, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
    mbarrier.wait(d_ready.index(0), 0)
    dv, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
    mbarrier.arrive(d_free.index(0))
    changes = gl.convert_layout(ds.to(dtype), left)
    j = first
    for i in range(1, count):
        mask_at += gl.where(j + 1 == stop, mask_h, 0)
        j = gl.where(j + 1 == stop, first, j + 1)
        # Always 0. Were the place of keys and values known to stay the same, it would be worked out once and
        # take registers that are not there, for every step of both products.
        zero = j >> 24
        k = k_tile.index(zero).slice(half * HALF, HALF)
        v = v_tile.index(zero).slice(half * HALF, HALF)
        slot = i % STAGES
        phase = (i // STAGES) & 1
        before = (i - 1) % STAGES
        gathered = warpgroup_mma(changes, q_ring.index(before), dk, is_async=True)
        mbarrier.wait(q_ready.index(slot), phase)
        s = _scores(k, q_ring, slot, nothing)
        mbarrier.wait(d_ready.index(slot), phase)
        dp = _scores(v, d_ring, slot, nothing)
        s, dk, changes = warpgroup_mma_wait(1, deps=[s, gathered, changes])
        mbarrier.arrive(q_free.index(before))
        p = gl.exp2(s * c - lse_ring.index(slot).load(columns)[None, :])
        p = _unseen_queries(p, j, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
        weights = gl.convert_layout(p.to(dtype), left)
        mixed = warpgroup_mma(weights, d_ring.index(slot), dv, is_async=True)
        dp = warpgroup_mma_wait(1, deps=[dp])
        ds = p * (dp - delta_ring.index(slot).load(columns)[None, :])
        ds = _unseen_queries(ds, j, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
        mbarrier.wait(d_ready.index(slot), phase)
        dv, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
        mbarrier.arrive(d_free.index(slot))
        changes = gl.convert_layout(ds.to(dtype), left)
    gathered = warpgroup_mma(changes, q_ring.index((count - 1) % STAGES), dk, is_async=True)
    dk = warpgroup_mma_wait(0, deps=[gathered])

    row = k_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, d_layout))[:, None]
    place = (row_at + row) * DIM + gl.arange(0, DIM, gl.SliceLayout(0, d_layout))[None, :]
    gl.store(DK + place, (dk * scale).to(dtype), mask=row < k_len)
    gl.store(DV + place, dv.to(dtype), mask=row < k_len)


# fmt: off
@gluon.jit(do_not_specialize=["k_len", "heads", "group", "plane_stride"])
def hopper_keys_kernel(
    Q, K, V, D_OUT, LSE, DELTA, DK, DV, LOW, HIGH, BLOCKS, ORDER,
    mask_b, mask_h, scale, k_len, heads, group, plane_stride,
    BLOCK: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """One program: the gradients of 128 keys and values, over the run of tiles of queries that see them, of
    every head that shares them."""
    kv_head, batch = gl.program_id(1), gl.program_id(2)
    block = gl.load(ORDER + batch * plane_stride + gl.program_id(0))
    bounds = BLOCKS + (batch * plane_stride + block) * 4
    first, stop = gl.load(bounds), gl.load(bounds + 1)
    full_first, full_stop = gl.load(bounds + 2), gl.load(bounds + 3)
    dtype: gl.constexpr = K.dtype
    k_box = gl.allocate_shared_memory(dtype, [1, 1, 2 * HALF, DIM], K.layout)
    v_box = gl.allocate_shared_memory(dtype, [1, 1, 2 * HALF, DIM], V.layout)
    q_boxes = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, DIM], Q.layout)
    d_boxes = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, DIM], D_OUT.layout)
    lse_boxes = gl.allocate_shared_memory(gl.float32, [STAGES, 1, BLOCK], LSE.layout)
    delta_boxes = gl.allocate_shared_memory(gl.float32, [STAGES, 1, BLOCK], DELTA.layout)
    # The copy engine knows batch rows and heads as axes of length 1; the matrix units want two axes.
    flat: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK, DIM], dtype)
    line: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    k_tile = k_box._reinterpret(dtype, [1, 2 * HALF, DIM], flat)
    v_tile = v_box._reinterpret(dtype, [1, 2 * HALF, DIM], flat)
    q_ring = q_boxes._reinterpret(dtype, [STAGES, BLOCK, DIM], flat)
    d_ring = d_boxes._reinterpret(dtype, [STAGES, BLOCK, DIM], flat)
    lse_ring = lse_boxes._reinterpret(gl.float32, [STAGES, BLOCK], line)
    delta_ring = delta_boxes._reinterpret(gl.float32, [STAGES, BLOCK], line)
    own_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    q_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    d_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    d_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(own_ready, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(q_ready.index(i), count=1)
        mbarrier.init(q_free.index(i), count=2)
        mbarrier.init(d_ready.index(i), count=1)
        mbarrier.init(d_free.index(i), count=2)
    fence_async_shared()

    head = kv_head * group
    mask_at = batch * mask_b + head * mask_h
    row_at = (batch * (heads // group) + kv_head).to(gl.int64) * k_len
    k_first = block * (2 * HALF)
    count = (stop - first) * group
    c = scale * LOG2E
    gl.warp_specialize(
        [
            (_to_keys, (
                k_tile, v_tile, q_ring, d_ring, lse_ring, delta_ring, own_ready, q_ready, q_free, d_ready,
                d_free, DK, DV, LOW, HIGH, mask_at, mask_h, row_at, k_first, first, stop, count,
                full_first, full_stop, k_len, c, scale, 0, BLOCK, DIM, STAGES)),
            (_to_keys, (
                k_tile, v_tile, q_ring, d_ring, lse_ring, delta_ring, own_ready, q_ready, q_free, d_ready,
                d_free, DK, DV, LOW, HIGH, mask_at, mask_h, row_at, k_first, first, stop, count,
                full_first, full_stop, k_len, c, scale, 1, BLOCK, DIM, STAGES)),
            (_load_queries, (
                Q, D_OUT, LSE, DELTA, K, V, k_box, v_box, q_boxes, d_boxes, lse_boxes, delta_boxes,
                own_ready, q_ready, q_free, d_ready, d_free, batch, head, kv_head, heads, k_first, first,
                stop, count, BLOCK, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
