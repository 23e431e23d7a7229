"""The portable backward: one kernel for dk and dv, one for dq, so that no atomics are needed.

The gradient of a score is w_ij (d_out_i · v_j - delta_i), with delta_i = d_out_i · out_i. Each of the two
kernels computes the scores again and sums in a fixed order. Grids: (blocks of rows, heads, batch) for
preprocess, (blocks, heads, batch) for the other two. In: q, k, v, lse2, delta, d_out, the tables of the plan.
Out: dq, dk, dv.
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
    finite,
    row_intervals,
    rows,
    run_bounds,
    score,
)

__all__ = ["keys_kernel", "preprocess_kernel", "queries_kernel"]

_LENGTHS = ["q_len", "k_len", "offset", "heads", "group", "plane_stride", "bias_b", "bias_h", "length"]


# fmt: off
@triton.jit(do_not_specialize=["q_len", "heads", "length"])
def preprocess_kernel(
    Q, OUT, D_OUT, LSE, D_LSE, CLEAN_Q, CLEAN_D, LSE2, DELTA,
    q_b, q_h, q_n, o_b, o_h, o_n, d_b, d_h, d_n, q_len, heads, length,
    DIM: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, HAS_D_LSE: tl.constexpr, CLEAN: tl.constexpr,
):
# fmt: on
    """One program: lse2 and delta of ROWS queries, for the other kernels. Lines are padded to `length`."""
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * ROWS
    map_at = batch * heads + head
    row = first + tl.arange(0, ROWS)
    there = row < q_len
    d = rows(D_OUT, batch, head, first, d_b, d_h, d_n, q_len, V_DIM, ROWS, V_WIDTH, True, False)
    out = rows(OUT, batch, head, first, o_b, o_h, o_n, q_len, V_DIM, ROWS, V_WIDTH, True, False)
    delta = tl.sum(d.to(tl.float32) * out.to(tl.float32), 1)
    if HAS_D_LSE:
        delta -= tl.load(D_LSE + map_at * q_len + row, mask=there, other=0.0)
    lse = tl.load(LSE + map_at * q_len + row, mask=there, other=float("-inf"))
    # exp(s - inf) = 0: dead rows and rows past the last one contribute nothing.
    lse2 = tl.where(lse == float("-inf"), float("inf"), lse * LOG2E)
    tl.store(LSE2 + map_at * length + row, lse2, mask=row < length)
    tl.store(DELTA + map_at * length + row, delta, mask=row < length)
    if CLEAN:
        # A row that attended to NaN or inf has lse NaN and gets a NaN gradient. Clean its q and d_out, so
        # that other rows are not affected.
        q = rows(Q, batch, head, first, q_b, q_h, q_n, q_len, DIM, ROWS, WIDTH, True, False)
        to = map_at * q_len + row[:, None]
        col, v_col = tl.arange(0, WIDTH)[None, :], tl.arange(0, V_WIDTH)[None, :]
        tl.store(CLEAN_Q + to * DIM + col, finite(q), mask=there[:, None] & (col < DIM))
        tl.store(CLEAN_D + to * V_DIM + v_col, finite(d), mask=there[:, None] & (v_col < V_DIM))


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def keys_kernel(
    Q, K, V, D_OUT, LSE, DELTA, DK, DV, BIAS, SLOPES, FULL_AT, FULL, EDGE_AT, EDGE, TILES, ORDER, LOW, HIGH,
    BITS,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, d_b, d_h, d_n, bias_b, bias_h, bias_q, bias_k, mask_b,
    mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, plane_stride, length,
    DIM: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, HAS_BITS: tl.constexpr,
    HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
):
# fmt: on
    """One program: the gradients of one block of keys and values, from every query head that shares them."""
    kv_head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    plane = batch * plane_stride
    block = tl.load(ORDER + plane + tl.program_id(0))
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    q_in_block, k_in_block = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    k_row = block * BLOCK_K + k_in_block
    k = rows(K, batch, kv_head, block * BLOCK_K, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH, True, TMA)
    v = rows(V, batch, kv_head, block * BLOCK_K, v_b, v_h, v_n, k_len, V_DIM, BLOCK_K, V_WIDTH, True, TMA)
    dk = tl.zeros([BLOCK_K, WIDTH], tl.float32)
    dv = tl.zeros([BLOCK_K, V_WIDTH], tl.float32)

    for member in range(group):
        head = kv_head * group + member
        head_bias = BIAS + batch * bias_b + tl.cast(head, tl.int64) * bias_h
        head_bits = BITS + tl.cast(head, tl.int64) * mask_h if HAS_BITS else BITS
        slope = tl.load(SLOPES + head) if ALIBI else 0.0
        map_at = batch * heads + head
        for IS_EDGE in tl.static_range(2):
            AT = EDGE_AT if IS_EDGE else FULL_AT
            RUN = EDGE if IS_EDGE else FULL
            for run in range(tl.load(AT + plane + block), tl.load(AT + plane + block + 1)):
                start, stop = run_bounds(RUN, run, IS_EDGE)
                for j in range(start, stop):
                    q_row = j * BLOCK_Q + q_in_block
                    there = q_row < q_len
                    q = rows(Q, batch, head, j * BLOCK_Q, q_b, q_h, q_n, q_len, DIM, BLOCK_Q, WIDTH, True,
                             TMA)
                    d_out = rows(D_OUT, batch, head, j * BLOCK_Q, d_b, d_h, d_n, q_len, V_DIM, BLOCK_Q,
                                 V_WIDTH, True, TMA)
                    lse = tl.load(LSE + map_at * length + q_row, mask=there, other=float("inf"))
                    delta = tl.load(DELTA + map_at * length + q_row, mask=there, other=0.0)
                    s = score(dot(k, tl.trans(q)), q_row[None, :], k_row[:, None], scale, softcap, offset,
                              slope, head_bias, bias_q, bias_k, q_len, k_len, HAS_BIAS, ALIBI, SOFTCAP)
                    x = s * (scale * LOG2E) - lse[None, :] if LINEAR else s - lse[None, :]
                    p = tl.exp2(x)  # (BLOCK_K, BLOCK_Q)
                    ds = p * (dot(v, tl.trans(d_out)) - delta[None, :])
                    if SOFTCAP:
                        ds *= 1 - (s * (LN2 / softcap)) * (s * (LN2 / softcap))
                    if IS_EDGE:
                        tile, low, high = run, q_row, q_row
                        if HAS_BITS:
                            tile = tl.load(TILES + tl.load(EDGE + run * 3 + 2) + j - start)
                        else:
                            at = batch * mask_b + head * mask_h + q_row
                            low = tl.load(LOW + at, mask=there, other=0)
                            high = tl.load(HIGH + at, mask=there, other=0)
                        keep = allowed(q_row[None, :], block, k_row[:, None], low[None, :], high[None, :],
                                       head_bits, tile, q_in_block[None, :], BLOCK_Q, BLOCK_K, HAS_BITS)
                        p, ds = tl.where(keep, p, 0.0), tl.where(keep, ds, 0.0)
                    dv = dot(p.to(d_out.dtype), d_out, dv)
                    dk = dot(ds.to(q.dtype), q, dk)

    there = k_row < k_len
    row_at = (batch * (heads // group) + kv_head) * k_len + k_row
    col, v_col = tl.arange(0, WIDTH), tl.arange(0, V_WIDTH)
    tl.store(DK + row_at[:, None] * DIM + col[None, :], (dk * scale).to(DK.dtype.element_ty),
             mask=there[:, None] & (col[None, :] < DIM))
    tl.store(DV + row_at[:, None] * V_DIM + v_col[None, :], dv.to(DV.dtype.element_ty),
             mask=there[:, None] & (v_col[None, :] < V_DIM))


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def queries_kernel(
    Q, K, V, D_OUT, LSE, DELTA, DQ, BIAS, SLOPES, FULL_AT, FULL, EDGE_AT, EDGE, TILES, ORDER, LOW, HIGH, BITS,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, d_b, d_h, d_n, bias_b, bias_h, bias_q, bias_k, mask_b,
    mask_h,
    scale, signed_scale, softcap, q_len, k_len, offset, heads, group, plane_stride, length,
    DIM: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, HAS_BITS: tl.constexpr,
    HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
):
# fmt: on
    """One program: the gradient of one block of queries, over every run of keys that it can see."""
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
    q = rows(Q, batch, head, block * BLOCK_Q, q_b, q_h, q_n, q_len, DIM, BLOCK_Q, WIDTH, True, TMA)
    d_out = rows(D_OUT, batch, head, block * BLOCK_Q, d_b, d_h, d_n, q_len, V_DIM, BLOCK_Q, V_WIDTH, True,
                 TMA)
    line_at = (batch * heads + head) * length + q_row
    lse = tl.load(LSE + line_at, mask=there, other=float("inf"))
    delta = tl.load(DELTA + line_at, mask=there, other=0.0)
    low, high, BITS = row_intervals(LOW, HIGH, BITS, batch, head, q_row, q_len, mask_b, mask_h, HAS_BITS)
    dq = tl.zeros([BLOCK_Q, WIDTH], tl.float32)
    for IS_EDGE in tl.static_range(2):
        AT = EDGE_AT if IS_EDGE else FULL_AT
        RUN = EDGE if IS_EDGE else FULL
        for run in range(tl.load(AT + plane + block), tl.load(AT + plane + block + 1)):
            start, stop = run_bounds(RUN, run, IS_EDGE)
            for j in range(start, stop):
                k_row = j * BLOCK_K + tl.arange(0, BLOCK_K)
                k = rows(K, batch, kv_head, j * BLOCK_K, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH, IS_EDGE,
                         TMA)
                v = rows(V, batch, kv_head, j * BLOCK_K, v_b, v_h, v_n, k_len, V_DIM, BLOCK_K, V_WIDTH,
                         IS_EDGE, TMA)
                s = score(dot(q, tl.trans(k)), q_row[:, None], k_row[None, :], scale, softcap, offset, slope,
                          BIAS, bias_q, bias_k, q_len, k_len, HAS_BIAS, ALIBI, SOFTCAP)
                x = s * (scale * LOG2E) - lse[:, None] if LINEAR else s - lse[:, None]  # (BLOCK_Q, BLOCK_K)
                ds = tl.exp2(x) * (dot(d_out, tl.trans(v)) - delta[:, None])
                if SOFTCAP:
                    ds *= 1 - (s * (LN2 / softcap)) * (s * (LN2 / softcap))
                if IS_EDGE:
                    keep = edge_pairs(TILES, EDGE, run, start, j, q_row, k_row, low, high, BITS, q_in_block,
                                      BLOCK_Q, BLOCK_K, HAS_BITS)
                    ds = tl.where(keep, ds, 0.0)
                dq = dot(ds.to(k.dtype), k, dq)
    col = tl.arange(0, WIDTH)
    tl.store(DQ + row_at[:, None] * DIM + col[None, :], (dq * signed_scale).to(DQ.dtype.element_ty),
             mask=there[:, None] & (col[None, :] < DIM))
