"""The backward for Hopper, dq: queries gather from keys.

Grid: (blocks of 128 queries, heads, batch). One warp drives TMA; two warpgroups hold 64 queries each. In:
q, k, v, d_out as TMA descriptors, lse2, delta. Out: dq. The last product of a tile is issued with the next
tile and overlaps its exponentials.
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
    load_tiles,
    mask_tile,
    release,
    ring,
    run_of,
)
from regard.engine.triton.hopper.thread_columns import HALF

__all__ = ["hopper_queries_kernel"]


# fmt: off
@gluon.jit
def _load_keys(
    Q, D_OUT, K, V, q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, v_ready,
    batch, head, kv_head, q_first, first, count, BLOCK: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The loading warp: load queries and the gradients of their outputs once, then keys and values into two
    rings."""
    mbarrier.expect(own_ready, Q.block_type.nbytes + D_OUT.block_type.nbytes)
    async_load(Q, [batch, head, q_first, 0], own_ready, q_tile)
    async_load(D_OUT, [batch, head, q_first, 0], own_ready, d_tile)
    load_tiles(K, V, k_ring, v_ring, k_ready, v_ready, batch, kv_head, first, count, 1, BLOCK, STAGES)


# fmt: off
@gluon.jit
def _to_queries(
    q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, v_ready, LSE, DELTA, DQ, LOW, HIGH,
    q_first, first, count, full_first, full_stop, q_len, c, signed_scale, half: gl.constexpr,
    BLOCK: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """One warpgroup: the gradient of its half of the queries. Pointers point at this head's rows."""
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
    zeros = gl.full([HALF, BLOCK], 0.0, gl.float32, s_layout)
    dq = gl.full([HALF, DIM], 0.0, gl.float32, d_layout)

    q = q_tile.slice(half * HALF, HALF)
    d_out = d_tile.slice(half * HALF, HALF)
    mbarrier.wait(own_ready, 0)
    # q and d_out stay in registers: a product with 64 keys is as fast as shared memory can be read, and this
    # halves what it must read.
    q = q.load(gl.DotOperandLayout(0, s_layout, 2))
    d_out = d_out.load(gl.DotOperandLayout(0, s_layout, 2))
    mbarrier.wait(k_ready.index(0), 0)
    s = dot_transposed(q, k_ring, 0, zeros)
    mbarrier.wait(v_ready.index(0), 0)
    dp = dot_transposed(d_out, v_ring, 0, zeros)
    s, dp = warpgroup_mma_wait(0, deps=[s, dp])
    release(STAGES, 2)
    ds = gl.exp2(s * c - lse[:, None]) * (dp - delta[:, None])  # (HALF, BLOCK)
    ds = mask_tile(ds, first, low, high, full_first, full_stop, 0.0, BLOCK, s_layout)
    weights = gl.convert_layout(ds.to(dtype), left)
    for i in range(1, count):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        before = (i - 1) % STAGES
        mbarrier.wait(k_ready.index(slot), phase)
        s = dot_transposed(q, k_ring, slot, zeros)
        mbarrier.wait(v_ready.index(slot), phase)
        dp = dot_transposed(d_out, v_ring, slot, zeros)
        mixed = warpgroup_mma(weights, k_ring.index(before), dq, is_async=True)
        s = warpgroup_mma_wait(2, deps=[s])
        p = gl.exp2(s * c - lse[:, None])
        # This wait never blocks. It is a branch, which ends a basic block: without it the assembler would
        # move the next wait to the top of its block, before the work that it should overlap. The same below.
        mbarrier.wait(v_ready.index(slot), phase)
        dp = warpgroup_mma_wait(1, deps=[dp])
        release(STAGES + slot, 2)
        ds = p * (dp - delta[:, None])
        ds = mask_tile(ds, first + i, low, high, full_first, full_stop, 0.0, BLOCK, s_layout)
        mbarrier.wait(k_ready.index(slot), phase)
        dq, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
        release(before, 2)
        weights = gl.convert_layout(ds.to(dtype), left)
    mixed = warpgroup_mma(weights, k_ring.index((count - 1) % STAGES), dq, is_async=True)
    dq = warpgroup_mma_wait(0, deps=[mixed])

    row = q_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, d_layout))[:, None]
    col = gl.arange(0, DIM, gl.SliceLayout(0, d_layout))[None, :]
    gl.store(DQ + row.to(gl.int64) * DIM + col, (dq * signed_scale).to(dtype), mask=row < q_len)


# fmt: off
@gluon.jit(do_not_specialize=["q_len", "rows", "heads", "group", "plane_stride", "across"])
def hopper_queries_kernel(
    Q, K, V, D_OUT, LSE, DELTA, DQ, LOW, HIGH, BLOCKS, ORDER,
    mask_b, mask_h, scale, signed_scale, q_len, rows, heads, group, plane_stride, across,
    BLOCK: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """One program: the gradient of 128 queries of one head, over their run of key tiles."""
    number, head = block_and_head(across)
    batch = gl.program_id(2)
    block, first, stop, full_first, full_stop = run_of(ORDER, BLOCKS, batch * plane_stride, number)
    q_tma, q_tiles = ring(Q, 1, 2 * HALF, DIM)
    d_tma, d_tiles = ring(D_OUT, 1, 2 * HALF, DIM)
    k_tma, k_ring = ring(K, STAGES, BLOCK, DIM)
    v_tma, v_ring = ring(V, STAGES, BLOCK, DIM)
    q_tma_tile, q_tile = q_tma.index(0), q_tiles.index(0)
    d_tma_tile, d_tile = d_tma.index(0), d_tiles.index(0)
    own_ready = barriers(1, 1).index(0)
    k_ready, v_ready = barriers(STAGES, 1), barriers(STAGES, 1)
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
                q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, v_ready,
                LSE, DELTA, DQ, LOW, HIGH, q_first, first, count, full_first, full_stop, q_len, c,
                signed_scale, 0, BLOCK, DIM, STAGES)),
            (_to_queries, (
                q_tile, d_tile, k_ring, v_ring, own_ready, k_ready, v_ready,
                LSE, DELTA, DQ, LOW, HIGH, q_first, first, count, full_first, full_stop, q_len, c,
                signed_scale, 1, BLOCK, DIM, STAGES)),
            (_load_keys, (
                Q, D_OUT, K, V, q_tma_tile, d_tma_tile, k_tma, v_tma, own_ready, k_ready, v_ready,
                batch, head, head // group, q_first, first, count, BLOCK, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
