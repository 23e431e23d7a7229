"""Operations on tiles that all portable kernels share: load rows, compute scores, apply the mask.

Scores are kept in units of log 2, because the hardware's exponential is a power of two. A plain dot product
stays raw: its scale is part of the multiply-add that subtracts the row's maximum.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "LN2",
    "LOG2E",
    "allowed",
    "dot",
    "edge_pairs",
    "finite",
    "row_intervals",
    "rows",
    "run_bounds",
    "score",
    "tanh",
]

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


# fmt: off
@triton.jit
def rows(
    x, batch, head, first, stride_b, stride_h, stride, length,
    DIM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, CHECK: tl.constexpr, TMA: tl.constexpr,
):
# fmt: on
    """Load BLOCK rows of one head from row `first` on, (BLOCK, WIDTH); CHECK if they may exceed `length`.

    WIDTH is DIM rounded up to a size that the matrix units take; missing elements read as 0. With TMA x is a
    tensor descriptor, which does all of this in hardware.
    """
    if TMA:
        block = tl.reshape(x.load([tl.cast(batch, tl.int32), head, first, 0]), [BLOCK, WIDTH])
    else:
        row = tl.arange(0, BLOCK)
        col = tl.arange(0, WIDTH)
        # A long text with many heads may have more elements than 32 bits can index.
        base = x + batch * stride_b + tl.cast(head, tl.int64) * stride_h + tl.cast(first, tl.int64) * stride
        at = base + row[:, None] * stride + col[None, :]
        if CHECK and DIM == WIDTH:
            block = tl.load(at, mask=first + row[:, None] < length, other=0.0)
        elif CHECK:
            block = tl.load(at, mask=(first + row[:, None] < length) & (col[None, :] < DIM), other=0.0)
        elif DIM == WIDTH:
            block = tl.load(at)
        else:
            block = tl.load(at, mask=col[None, :] < DIM, other=0.0)
    return block


@triton.jit
def dot(a, b, acc=None):
    """a @ b with float32 sums; float32 operands are multiplied in three passes, which keeps their precision.
    """
    if a.dtype == tl.float32:
        return tl.dot(a, b, acc, input_precision="tf32x3")
    return tl.dot(a, b, acc)


@triton.jit
def finite(x):
    """x with NaN and inf replaced by 0: masked keys have weight 0, and 0 · NaN would be NaN."""
    return tl.where(tl.abs(x) < float("inf"), x, 0.0)


@triton.jit
def tanh(x):
    """tanh, with one exponential that never overflows."""
    e = tl.exp2(tl.abs(x) * (-2 * LOG2E))
    t = (1 - e) / (1 + e)
    return tl.where(x < 0, -t, t)


@triton.jit
def score(
    s, q_row, k_row, scale, softcap, offset, slope, BIAS, bias_q, bias_k, q_len, k_len,
    HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Raw dot products as scores in units of log 2 (left raw if only the scale applies).

    q_row and k_row broadcast to the tile; `BIAS` points at this batch row and head.
    """
    if not (HAS_BIAS or ALIBI or SOFTCAP):
        return s
    s = s * scale
    if HAS_BIAS:
        there = (q_row < q_len) & (k_row < k_len)
        s += tl.load(BIAS + q_row.to(tl.int64) * bias_q + k_row * bias_k, mask=there,
                     other=0.0).to(tl.float32)
    if ALIBI:
        s -= slope * tl.abs(q_row + offset - k_row).to(tl.float32)
    if SOFTCAP:
        capped = softcap * tanh(s / softcap)
        # A bias of -inf must stay -inf: the soft cap would make it finite.
        s = tl.where(s == float("-inf"), s, capped) if HAS_BIAS else capped
    return s * LOG2E


@triton.jit
def allowed(
    q_row, k_block, k_row, low, high, BITS, tile, q_in_block,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, HAS_BITS: tl.constexpr,
):  # fmt: skip
    """Which pairs of an edge tile may attend. Arguments broadcast to the tile, in either orientation."""
    if HAS_BITS:
        cell = k_row - k_block * BLOCK_K
        word = tl.load(BITS + (tile.to(tl.int64) * BLOCK_Q + q_in_block) * (BLOCK_K // 32) + cell // 32)
        return ((word >> (cell % 32)) & 1) != 0
    return (k_row >= low) & (k_row < high)


@triton.jit
def run_bounds(RUN, run, IS_EDGE: tl.constexpr):
    """The start and stop of a full or edge run, in blocks of the other side (`Runs`)."""
    start = tl.load(RUN + run * (2 + IS_EDGE))
    stop = tl.load(RUN + run * (2 + IS_EDGE) + 1)
    return start, stop


@triton.jit
def row_intervals(LOW, HIGH, BITS, batch, head, q_row, q_len, mask_b, mask_h, HAS_BITS: tl.constexpr):
    """What `edge_pairs` needs of the mask of some rows: their intervals of keys, or with HAS_BITS the pointer
    to this head's bits; the others are returned unchanged."""
    low, high = q_row, q_row
    if not HAS_BITS:
        at = batch * mask_b + head * mask_h + q_row
        low = tl.load(LOW + at, mask=q_row < q_len, other=0)
        high = tl.load(HIGH + at, mask=q_row < q_len, other=0)
    else:
        BITS += head.to(tl.int64) * mask_h
    return low, high, BITS


# fmt: off
@triton.jit
def edge_pairs(
    TILES, EDGE, run, start, j, q_row, k_row, low, high, BITS, q_in_block,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, HAS_BITS: tl.constexpr,
):
# fmt: on
    """Which pairs of block j of keys may attend, (BLOCK_Q, BLOCK_K); `run` is an edge run from block
    `start`."""
    tile = run
    if HAS_BITS:
        tile = tl.load(TILES + tl.load(EDGE + run * 3 + 2) + j - start)
    return allowed(q_row[:, None], j, k_row[None, :], low[:, None], high[:, None], BITS, tile,
                   q_in_block[:, None], BLOCK_Q, BLOCK_K, HAS_BITS)
