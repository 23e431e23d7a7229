"""Kernels over the sum of all heads' weights: the heaviest keys, the sums of a KL, and whole tiles.

A program owns a block of queries and some blocks of keys. Of each tile it computes the weights head by head
from the log-sum-exp, and adds them in registers. No program stores a tile unless tiles are requested. There
are no atomics: each part of a row has a place of its own, and parts are joined in a fixed order.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.tiles import LN2, LOG2E, allowed, dot, rows, run_bounds, score
from regard.engine.triton.topk.best_list import empty_list, list_best

__all__ = ["divergence_kernel", "shared_keys_kernel", "tiles_kernel"]

_LENGTHS = ["q_len", "k_len", "offset", "heads", "group", "plane_stride", "bias_b", "bias_h", "chunk",
            "first_block", "first_batch", "index_heads", "index_q_b", "index_k_b", "index_w_b", "index_w_h",
            "scores_b", "scores_first", "first_key", "stop_key", "out_b"]  # fmt: skip


@triton.jit
def _block_of(first_block):
    """The block of queries of this program; the last first, which sees most under a causal mask."""
    return first_block + tl.num_programs(0) - 1 - tl.program_id(0)


# fmt: off
@triton.jit
def summed_weights(
    Q, K, LSE, BIAS, SLOPES, TILES, EDGE, LOW, HIGH, BITS, run, start, j, batch, block,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    HAS_BITS: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
    PER_HEAD: tl.constexpr, IS_EDGE: tl.constexpr,
):
# fmt: on
    """The weights of block j of keys, summed over heads, and which pairs any head may attend to; both
    (BLOCK_Q, BLOCK_K). `run` is the run that holds it, from block `start` on."""
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    q_in_block = tl.arange(0, BLOCK_Q)
    q_row, k_row = block * BLOCK_Q + q_in_block, j * BLOCK_K + tl.arange(0, BLOCK_K)
    there = q_row < q_len
    tile = run
    if IS_EDGE and HAS_BITS:
        tile = tl.load(TILES + tl.load(EDGE + run * 3 + 2) + j - start)
    total = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    seen = tl.full([BLOCK_Q, BLOCK_K], not (IS_EDGE and PER_HEAD), tl.int1)
    for head in range(heads):
        q = rows(Q, batch, head, block * BLOCK_Q, q_b, q_h, q_n, q_len, DIM, BLOCK_Q, WIDTH, True, TMA)
        k = rows(K, batch, head // group, j * BLOCK_K, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH, IS_EDGE,
                 TMA)
        lse = tl.load(LSE + (batch * heads + head) * q_len + q_row, mask=there, other=float("inf")) * LOG2E
        # Dead rows and rows past the last have lse +inf, and weight exp(s - inf) = 0 everywhere.
        lse = tl.where(lse == float("-inf"), float("inf"), lse)
        slope = tl.load(SLOPES + head) if ALIBI else 0.0
        s = score(dot(q, tl.trans(k)), q_row[:, None], k_row[None, :], scale, softcap, offset, slope,
                  BIAS + batch * bias_b + tl.cast(head, tl.int64) * bias_h, bias_q, bias_k, q_len, k_len,
                  HAS_BIAS, ALIBI, SOFTCAP)  # (BLOCK_Q, BLOCK_K)
        x = s * (scale * LOG2E) - lse[:, None] if LINEAR else s - lse[:, None]
        if IS_EDGE and PER_HEAD:
            low, high = q_row, q_row
            if not HAS_BITS:
                at = batch * mask_b + head * mask_h + q_row
                low = tl.load(LOW + at, mask=there, other=0)
                high = tl.load(HIGH + at, mask=there, other=0)
            keep = allowed(q_row[:, None], j, k_row[None, :], low[:, None], high[:, None],
                           BITS + tl.cast(head, tl.int64) * mask_h, tile, q_in_block[:, None], BLOCK_Q,
                           BLOCK_K, HAS_BITS)
            x = tl.where(keep, x, float("-inf"))
            seen = seen | keep
        total += tl.exp2(x)
    if IS_EDGE and not PER_HEAD:
        # One mask for all heads: the sum is masked, and with it whatever garbage the forbidden keys gave.
        low, high = q_row, q_row
        if not HAS_BITS:
            low = tl.load(LOW + batch * mask_b + q_row, mask=there, other=0)
            high = tl.load(HIGH + batch * mask_b + q_row, mask=there, other=0)
        seen = allowed(q_row[:, None], j, k_row[None, :], low[:, None], high[:, None], BITS, tile,
                       q_in_block[:, None], BLOCK_Q, BLOCK_K, HAS_BITS)
        total = tl.where(seen, total, 0.0)
    return total, seen


# fmt: off
@triton.jit
def taught_scores(
    SCORES, INDEX_Q, INDEX_K, INDEX_W, j, batch, block,
    scores_b, scores_q, scores_k, scores_first, first_key, stop_key,
    index_q_b, index_q_h, index_q_n, index_k_b, index_k_n, index_w_b, index_w_h, index_w_n,
    q_len, k_len, index_heads,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, INDEXED: tl.constexpr, INDEX_DIM: tl.constexpr,
    INDEX_WIDTH: tl.constexpr,
):
# fmt: on
    """The student's scores of block j of keys, (BLOCK_Q, BLOCK_K): loaded, or with INDEXED an indexer's."""
    q_row, k_row = block * BLOCK_Q + tl.arange(0, BLOCK_Q), j * BLOCK_K + tl.arange(0, BLOCK_K)
    if INDEXED:
        t = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
        k = rows(INDEX_K, batch, 0, j * BLOCK_K, index_k_b, 0, index_k_n, k_len, INDEX_DIM, BLOCK_K,
                 INDEX_WIDTH, True, False)
        for head in range(index_heads):
            q = rows(INDEX_Q, batch, head, block * BLOCK_Q, index_q_b, index_q_h, index_q_n, q_len, INDEX_DIM,
                     BLOCK_Q, INDEX_WIDTH, True, False)
            weight = tl.load(INDEX_W + batch * index_w_b + tl.cast(head, tl.int64) * index_w_h
                             + q_row.to(tl.int64) * index_w_n, mask=q_row < q_len, other=0.0).to(tl.float32)
            hit = dot(q, tl.trans(k))
            # Not a maximum with 0: that would turn NaN into 0.
            t += weight[:, None] * tl.where(hit < 0, 0.0, hit)
    else:
        there = (q_row < q_len)[:, None] & ((k_row >= first_key) & (k_row < stop_key))[None, :]
        # The tile's place needs 64 bits, places within it need 32: tensors of 64 bits would be spilled.
        SCORES += batch * scores_b + tl.cast(block * BLOCK_Q - scores_first, tl.int64) * scores_q
        SCORES += tl.cast(j * BLOCK_K - first_key, tl.int64) * scores_k
        at = tl.arange(0, BLOCK_Q)[:, None] * scores_q + tl.arange(0, BLOCK_K)[None, :] * scores_k
        t = tl.load(SCORES + at, mask=there, other=0.0).to(tl.float32)
    return t


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def divergence_kernel(
    Q, K, LSE, BIAS, SLOPES, FULL_AT, FULL, EDGE_AT, EDGE, TILES, LOW, HIGH, BITS,
    SCORES, INDEX_Q, INDEX_K, INDEX_W, PARTS,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scores_b, scores_q, scores_k, scores_first, first_key, stop_key,
    index_q_b, index_q_h, index_q_n, index_k_b, index_k_n, index_w_b, index_w_h, index_w_n, index_heads,
    scale, softcap, q_len, k_len, offset, heads, group, plane_stride, first_block, chunk,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    HAS_BITS: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
    PER_HEAD: tl.constexpr, INDEXED: tl.constexpr, INDEX_DIM: tl.constexpr, INDEX_WIDTH: tl.constexpr,
):
# fmt: on
    """One program: the sums of a KL over `chunk` blocks of keys, for one block of queries.

    PARTS is (5, chunks, batch, q_len): the mass m of the row, Σ m log m, Σ m t, Σ exp(t - top) and top, the
    largest score t of the student among the visible keys.
    """
    block, batch = _block_of(first_block), tl.program_id(2).to(tl.int64)
    first = tl.program_id(1) * chunk
    at_run = batch * plane_stride + block
    q_row = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    mass = tl.zeros([BLOCK_Q], tl.float32)
    logs = tl.zeros([BLOCK_Q], tl.float32)
    cross = tl.zeros([BLOCK_Q], tl.float32)
    exps = tl.zeros([BLOCK_Q], tl.float32)
    top = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    for IS_EDGE in tl.static_range(2):
        AT = EDGE_AT if IS_EDGE else FULL_AT
        RUN = EDGE if IS_EDGE else FULL
        for run in range(tl.load(AT + at_run), tl.load(AT + at_run + 1)):
            start, stop = run_bounds(RUN, run, IS_EDGE)
            for j in range(tl.maximum(start, first), tl.minimum(stop, first + chunk)):
                m, seen = summed_weights(
                    Q, K, LSE, BIAS, SLOPES, TILES, EDGE, LOW, HIGH, BITS, run, start, j, batch, block,
                    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
                    scale, softcap, q_len, k_len, offset, heads, group, DIM, WIDTH, BLOCK_Q, BLOCK_K, TMA,
                    HAS_BITS, HAS_BIAS, ALIBI, SOFTCAP, PER_HEAD, IS_EDGE)
                t = taught_scores(
                    SCORES, INDEX_Q, INDEX_K, INDEX_W, j, batch, block, scores_b, scores_q, scores_k,
                    scores_first, first_key, stop_key, index_q_b, index_q_h, index_q_n, index_k_b, index_k_n,
                    index_w_b, index_w_h, index_w_n, q_len, k_len, index_heads, BLOCK_Q, BLOCK_K, INDEXED,
                    INDEX_DIM, INDEX_WIDTH)
                t = tl.where(seen, t, float("-inf"))
                mass += tl.sum(m, 1)
                logs += tl.sum(m * tl.log2(tl.where(m == 0, 1.0, m)), 1)
                # A student may give -inf to a key that no head attends to, and 0 * -inf is NaN.
                cross += tl.sum(m * tl.where(m == 0, 0.0, t), 1)
                higher = tl.maximum(top, tl.max(t, 1))
                base = tl.where(higher == float("-inf"), 0.0, higher)
                exps *= tl.exp2((top - base) * LOG2E)
                exps += tl.sum(tl.exp2((t - base[:, None]) * LOG2E), 1)
                top = higher
    there, wide = q_row < q_len, tl.num_programs(2) * q_len
    part = PARTS + (tl.program_id(1) * tl.num_programs(2) + batch) * q_len + q_row
    step = tl.num_programs(1).to(tl.int64) * wide
    tl.store(part, mass, mask=there)
    tl.store(part + step, logs * LN2, mask=there)
    tl.store(part + 2 * step, cross, mask=there)
    tl.store(part + 3 * step, exps, mask=there)
    tl.store(part + 4 * step, top, mask=there)


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def tiles_kernel(
    Q, K, LSE, BIAS, SLOPES, FULL_AT, FULL, EDGE_AT, EDGE, TILES, LOW, HIGH, BITS,
    SCORES, INDEX_Q, INDEX_K, INDEX_W, NORM, SHARE, PULL, OUT,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scores_b, scores_q, scores_k, scores_first, first_key, stop_key,
    index_q_b, index_q_h, index_q_n, index_k_b, index_k_n, index_w_b, index_w_h, index_w_n, index_heads,
    out_b, out_q,
    scale, softcap, q_len, k_len, offset, heads, group, plane_stride, first_block, first_batch, chunk,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    HAS_BITS: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
    PER_HEAD: tl.constexpr, INDEXED: tl.constexpr, INDEX_DIM: tl.constexpr, INDEX_WIDTH: tl.constexpr,
    GRADIENT: tl.constexpr, ADD: tl.constexpr,
):
# fmt: on
    """One program: store the visited tiles of one block of queries and `chunk` blocks of keys, float32.

    A tile holds the weights summed over heads or, with GRADIENT, the gradient of the student's scores,
    PULL · (exp(t - NORM) - SHARE · weights). OUT begins at the first query of block `first_block`; with ADD
    tiles are added to it. SCORES and OUT begin at key `first_key`.
    """
    block, batch = _block_of(first_block), first_batch + tl.program_id(2).to(tl.int64)
    first = tl.program_id(1) * chunk
    at_run = batch * plane_stride + block
    q_row = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    there = q_row < q_len
    if GRADIENT:
        at_row = batch * q_len + q_row
        norm = tl.load(NORM + at_row, mask=there, other=float("inf"))
        share = tl.load(SHARE + at_row, mask=there, other=0.0)
        pull = tl.load(PULL + at_row, mask=there, other=0.0)
    OUT += batch * out_b + tl.cast((block - first_block) * BLOCK_Q, tl.int64) * out_q
    for IS_EDGE in tl.static_range(2):
        AT = EDGE_AT if IS_EDGE else FULL_AT
        RUN = EDGE if IS_EDGE else FULL
        for run in range(tl.load(AT + at_run), tl.load(AT + at_run + 1)):
            start, stop = run_bounds(RUN, run, IS_EDGE)
            for j in range(tl.maximum(start, first), tl.minimum(stop, first + chunk)):
                found, seen = summed_weights(
                    Q, K, LSE, BIAS, SLOPES, TILES, EDGE, LOW, HIGH, BITS, run, start, j, batch, block,
                    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
                    scale, softcap, q_len, k_len, offset, heads, group, DIM, WIDTH, BLOCK_Q, BLOCK_K, TMA,
                    HAS_BITS, HAS_BIAS, ALIBI, SOFTCAP, PER_HEAD, IS_EDGE)
                k_row = j * BLOCK_K + tl.arange(0, BLOCK_K)
                inside = there[:, None] & ((k_row >= first_key) & (k_row < stop_key))[None, :]
                if GRADIENT:
                    t = taught_scores(
                        SCORES, INDEX_Q, INDEX_K, INDEX_W, j, batch, block, scores_b, scores_q, scores_k,
                        scores_first, first_key, stop_key, index_q_b, index_q_h, index_q_n, index_k_b,
                        index_k_n, index_w_b, index_w_h, index_w_n, q_len, k_len, index_heads, BLOCK_Q,
                        BLOCK_K, INDEXED, INDEX_DIM, INDEX_WIDTH)
                    # Keys that no head sees get 0, whatever their scores are.
                    t = tl.where(seen, t, float("-inf"))
                    found = tl.exp2((t - norm[:, None]) * LOG2E) - share[:, None] * found
                    found *= pull[:, None]
                at = tl.arange(0, BLOCK_Q)[:, None] * out_q + (k_row - first_key)[None, :]
                if ADD:
                    found += tl.load(OUT + at, mask=inside, other=0.0)
                tl.store(OUT + at, found, mask=inside)


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def shared_keys_kernel(
    Q, K, LSE, BIAS, SLOPES, FULL_AT, FULL, EDGE_AT, EDGE, TILES, LOW, HIGH, BITS, WEIGHT, KEY,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, plane_stride, first_block, chunk,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    HAS_BITS: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
    PER_HEAD: tl.constexpr, TOP: tl.constexpr, TAKE: tl.constexpr,
):
# fmt: on
    """One program: the TAKE keys of the largest summed weight among `chunk` blocks of keys, for each row of
    one block of queries.

    WEIGHT and KEY are (batch, q_len, chunks, TAKE). Lists hold TOP keys, TAKE rounded up to a power of two.
    """
    block, batch = _block_of(first_block), tl.program_id(2).to(tl.int64)
    first = tl.program_id(1) * chunk
    at_run = batch * plane_stride + block
    q_row = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    best, best_key = empty_list(BLOCK_Q, TOP)
    for IS_EDGE in tl.static_range(2):
        AT = EDGE_AT if IS_EDGE else FULL_AT
        RUN = EDGE if IS_EDGE else FULL
        for run in range(tl.load(AT + at_run), tl.load(AT + at_run + 1)):
            start, stop = run_bounds(RUN, run, IS_EDGE)
            for j in range(tl.maximum(start, first), tl.minimum(stop, first + chunk)):
                found, _ = summed_weights(
                    Q, K, LSE, BIAS, SLOPES, TILES, EDGE, LOW, HIGH, BITS, run, start, j, batch, block,
                    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
                    scale, softcap, q_len, k_len, offset, heads, group, DIM, WIDTH, BLOCK_Q, BLOCK_K, TMA,
                    HAS_BITS, HAS_BIAS, ALIBI, SOFTCAP, PER_HEAD, IS_EDGE)
                found = tl.where(found > 0, found, float("-inf"))
                best, best_key = list_best(best, best_key, found, j * BLOCK_K + tl.arange(0, BLOCK_K))
    there = q_row < q_len
    to = ((batch * q_len + q_row) * tl.num_programs(1) + tl.program_id(1)) * TAKE
    for i in range(TAKE):
        heaviest = tl.max(best, 1)
        key = tl.min(tl.where((best == heaviest[:, None]) & (best_key >= 0), best_key, 2**31 - 1), 1)
        some = heaviest > 0
        tl.store(WEIGHT + to + i, tl.where(some, heaviest, 0.0), mask=there)
        tl.store(KEY + to + i, tl.where(some, key, -1).to(tl.int64), mask=there)
        best = tl.where(best_key == key[:, None], float("-inf"), best)
