"""The backward for Hopper, dk and dv: keys gather from queries.

Grid: (blocks of 128 keys, key heads, batch). One warp drives TMA; two warpgroups hold 64 keys each. In: q,
k, v, d_out, lse2 and delta as TMA descriptors. Out: dk, dv.

Scores are computed transposed (keys × queries), so that weights are already in the operand registers of the
next products. The last product of a tile is issued with the next tile and overlaps its exponentials.
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
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.engine.triton.hopper.gluon_compat import async_load
from regard.engine.triton.hopper.ring import (
    LOG2E,
    barriers,
    block_and_head,
    dot_transposed,
    line_ring,
    ring,
    run_of,
)
from regard.engine.triton.hopper.thread_columns import HALF

__all__ = ["hopper_keys_kernel"]


# fmt: off
@gluon.jit
def _load_queries(
    Q, D_OUT, LSE, DELTA, K, V, k_tile, v_tile, q_ring, d_ring, lse_ring, delta_ring,
    own_ready, q_ready, q_free, d_ready, d_free, batch, head, kv_head, heads, k_first, first, stop, count,
    BLOCK: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The loading warp: load keys and values once; then, head by head, queries with their log-sum-exp into
    one ring, and the gradients of the output with delta into another."""
    mbarrier.expect(own_ready, K.block_type.nbytes + V.block_type.nbytes)
    async_load(K, [batch, kv_head, k_first, 0], own_ready, k_tile)
    async_load(V, [batch, kv_head, k_first, 0], own_ready, v_tile)
    j = first
    for i in range(count):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        row = j * BLOCK
        map_at = batch * heads + head
        mbarrier.wait(q_free.index(slot), phase ^ 1)
        ready = q_ready.index(slot)
        mbarrier.expect(ready, Q.block_type.nbytes + LSE.block_type.nbytes)
        async_load(Q, [batch, head, row, 0], ready, q_ring.index(slot))
        async_load(LSE, [map_at, row], ready, lse_ring.index(slot))
        mbarrier.wait(d_free.index(slot), phase ^ 1)
        ready = d_ready.index(slot)
        mbarrier.expect(ready, D_OUT.block_type.nbytes + DELTA.block_type.nbytes)
        async_load(D_OUT, [batch, head, row, 0], ready, d_ring.index(slot))
        async_load(DELTA, [map_at, row], ready, delta_ring.index(slot))
        head += gl.where(j + 1 == stop, 1, 0)
        j = gl.where(j + 1 == stop, first, j + 1)


# fmt: off
@gluon.jit
def _mask_queries(
    x, j, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK: gl.constexpr, layout: gl.constexpr,
):
# fmt: on
    """Tile j (keys × queries) with 0 where a query may not see a key; a full tile is returned unchanged.

    The two ends of the intervals are compared one after the other: there are not enough registers for both.
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
    """One warpgroup: the gradients of its half of the keys and values. Pointers point at this head's rows."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, d_layout, 2)
    columns: gl.constexpr = gl.SliceLayout(0, s_layout)
    dtype: gl.constexpr = q_ring.dtype

    k_row = k_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, s_layout))
    zeros = gl.full([HALF, BLOCK], 0.0, gl.float32, s_layout)
    dk = gl.full([HALF, DIM], 0.0, gl.float32, d_layout)
    dv = gl.full([HALF, DIM], 0.0, gl.float32, d_layout)

    k = k_tile.index(0).slice(half * HALF, HALF)
    v = v_tile.index(0).slice(half * HALF, HALF)
    mbarrier.wait(own_ready, 0)
    mbarrier.wait(q_ready.index(0), 0)
    s = dot_transposed(k, q_ring, 0, zeros)
    mbarrier.wait(d_ready.index(0), 0)
    dp = dot_transposed(v, d_ring, 0, zeros)
    s = warpgroup_mma_wait(1, deps=[s])
    p = gl.exp2(s * c - lse_ring.index(0).load(columns)[None, :])  # (HALF, BLOCK)
    p = _mask_queries(p, first, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
    weights = gl.convert_layout(p.to(dtype), left)
    mixed = warpgroup_mma(weights, d_ring.index(0), dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=[dp])
    ds = p * (dp - delta_ring.index(0).load(columns)[None, :])
    ds = _mask_queries(ds, first, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
    mbarrier.wait(d_ready.index(0), 0)
    dv, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
    mbarrier.arrive(d_free.index(0))
    ds_operand = gl.convert_layout(ds.to(dtype), left)
    j = first
    for i in range(1, count):
        mask_at += gl.where(j + 1 == stop, mask_h, 0)
        j = gl.where(j + 1 == stop, first, j + 1)
        # Always 0, but the compiler doesn't know. With a constant it would compute the addresses of k and v
        # for every step of both products before the loop, and run out of registers.
        zero = j >> 24
        k = k_tile.index(zero).slice(half * HALF, HALF)
        v = v_tile.index(zero).slice(half * HALF, HALF)
        slot = i % STAGES
        phase = (i // STAGES) & 1
        before = (i - 1) % STAGES
        # Loaded before the products are issued: they keep shared memory busy, and the load would wait for
        # their end.
        mbarrier.wait(q_ready.index(slot), phase)
        lse = lse_ring.index(slot).load(columns)[None, :]
        gathered = warpgroup_mma(ds_operand, q_ring.index(before), dk, is_async=True)
        s = dot_transposed(k, q_ring, slot, zeros)
        mbarrier.wait(d_ready.index(slot), phase)
        dp = dot_transposed(v, d_ring, slot, zeros)
        s, dk, ds_operand = warpgroup_mma_wait(1, deps=[s, gathered, ds_operand])
        mbarrier.arrive(q_free.index(before))
        p = gl.exp2(s * c - lse)
        p = _mask_queries(p, j, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
        weights = gl.convert_layout(p.to(dtype), left)
        mixed = warpgroup_mma(weights, d_ring.index(slot), dv, is_async=True)
        dp = warpgroup_mma_wait(1, deps=[dp])
        ds = p * (dp - delta_ring.index(slot).load(columns)[None, :])
        ds = _mask_queries(ds, j, k_row, LOW, HIGH, mask_at, full_first, full_stop, BLOCK, s_layout)
        mbarrier.wait(d_ready.index(slot), phase)
        dv, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
        mbarrier.arrive(d_free.index(slot))
        ds_operand = gl.convert_layout(ds.to(dtype), left)
    gathered = warpgroup_mma(ds_operand, q_ring.index((count - 1) % STAGES), dk, is_async=True)
    dk = warpgroup_mma_wait(0, deps=[gathered])

    row = k_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, d_layout))[:, None]
    place = (row_at + row) * DIM + gl.arange(0, DIM, gl.SliceLayout(0, d_layout))[None, :]
    gl.store(DK + place, (dk * scale).to(dtype), mask=row < k_len)
    gl.store(DV + place, dv.to(dtype), mask=row < k_len)


# fmt: off
@gluon.jit(do_not_specialize=["k_len", "heads", "group", "plane_stride", "across"])
def hopper_keys_kernel(
    Q, K, V, D_OUT, LSE, DELTA, DK, DV, LOW, HIGH, BLOCKS, ORDER,
    mask_b, mask_h, scale, k_len, heads, group, plane_stride, across,
    BLOCK: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """One program: the gradients of 128 keys and values, over the run of query tiles that see them, for every
    query head that shares them."""
    number, kv_head = block_and_head(across)
    batch = gl.program_id(2)
    block, first, stop, full_first, full_stop = run_of(ORDER, BLOCKS, batch * plane_stride, number)
    k_tma, k_tile = ring(K, 1, 2 * HALF, DIM)
    v_tma, v_tile = ring(V, 1, 2 * HALF, DIM)
    q_tma, q_ring = ring(Q, STAGES, BLOCK, DIM)
    d_tma, d_ring = ring(D_OUT, STAGES, BLOCK, DIM)
    lse_tma, lse_ring = line_ring(LSE, STAGES, BLOCK)
    delta_tma, delta_ring = line_ring(DELTA, STAGES, BLOCK)
    k_tma_tile, v_tma_tile, own_ready = k_tma.index(0), v_tma.index(0), barriers(1, 1).index(0)
    q_ready, q_free = barriers(STAGES, 1), barriers(STAGES, 2)
    d_ready, d_free = barriers(STAGES, 1), barriers(STAGES, 2)
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
                Q, D_OUT, LSE, DELTA, K, V, k_tma_tile, v_tma_tile, q_tma, d_tma, lse_tma, delta_tma,
                own_ready, q_ready, q_free, d_ready, d_free, batch, head, kv_head, heads, k_first, first,
                stop, count, BLOCK, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
