"""The portable fused forward: online softmax over the runs of a plan, with row statistics.

Grid: (blocks of queries, heads, batch). One program reads a block of queries and every key tile it can see.
In: q, k, v, the tables of the plan. Out: out, lse and, if requested, entropy, distance, max score, tile
maxima.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.tiles import (
    LN2,
    LOG2E,
    dot,
    edge_pairs,
    finite,
    row_intervals,
    rows,
    run_bounds,
    score,
)

__all__ = ["argmax_kernel", "first_weight_kernel", "forward_kernel"]

_COMMON = ["q_len", "k_len", "offset", "heads", "group", "q_blocks", "plane_stride", "bias_b", "bias_h"]
_LENGTHS = [*_COMMON, "early", "maxima_size", "maxima_rows", "maxima_first"]
_ARGMAX_LENGTHS = [*_COMMON, "k_blocks"]


@triton.jit
def _first_weight(s, lse, low, high, KEYS: tl.constexpr):
    """The total weight of the first KEYS keys in each row, given their scores (BLOCK_Q, KEYS) and the row's
    log-sum-exp, both in units of log 2."""
    key = tl.arange(0, KEYS)[None, :]
    # A dead row has lse -inf, and sees nothing.
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    seen = (key >= low[:, None]) & (key < high[:, None])
    return tl.sum(tl.where(seen, tl.exp2(s - lse[:, None]), 0.0), 1)


# fmt: off
@triton.jit
def _attend(
    batch, head, block,
    Q, K, V, OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA, DIRTY, SINK, BIAS,
    SLOPES,
    FULL_AT, FULL, EDGE_AT, EDGE, TILES, LOW, HIGH, BITS,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, q_blocks, plane_stride, early, maxima_size,
    maxima_rows, maxima_first,
    DIM: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, HAS_BITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ALIBI: tl.constexpr, SOFTCAP: tl.constexpr, HAS_SINK: tl.constexpr, ENTROPIES: tl.constexpr,
    DISTANCES: tl.constexpr, MAX_SCORES: tl.constexpr, CLASSES: tl.constexpr, FIRST_KEYS: tl.constexpr,
    CAREFUL: tl.constexpr, PARTS: tl.constexpr, GRAIN: tl.constexpr,
):
# fmt: on
    """Attention of one block of queries of one head, over every run of keys that it can see, with tiles split
    into PARTS. With GRAIN it stores each row's maximum over every GRAIN keys, in units of log 2.

    Full runs come first: after them the running maximum rarely changes. For a row that has seen no key,
    scores are shifted by 0 and not by the maximum, because -inf - -inf is NaN.
    """
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    KEYS: tl.constexpr = BLOCK_K // PARTS
    TILE_MAXIMA += (batch * heads + head) * maxima_size - maxima_first
    plane = batch * plane_stride
    dirty_at = (batch * heads + head) * q_blocks + block
    kv_head = head // group
    BIAS += batch * bias_b + head.to(tl.int64) * bias_h
    slope = tl.load(SLOPES + head) if ALIBI else 0.0

    q_in_block = tl.arange(0, BLOCK_Q)
    q_row = block * BLOCK_Q + q_in_block
    q = rows(Q, batch, head, block * BLOCK_Q, q_b, q_h, q_n, q_len, DIM, BLOCK_Q, WIDTH, True, False)
    low, high, BITS = row_intervals(LOW, HIGH, BITS, batch, head, q_row, q_len, mask_b, mask_h, HAS_BITS)

    acc = tl.zeros([BLOCK_Q, V_WIDTH], tl.float32)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    tile_max = row_max
    shift = tl.zeros([BLOCK_Q], tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    energy, distance = total, total
    # With CLASSES = 0 the key itself is stored.
    CLASS_COUNT: tl.constexpr = max(1, CLASSES)
    best = tl.full([BLOCK_Q, CLASS_COUNT], float("-inf"), tl.float32)
    best_at = tl.full([BLOCK_Q, CLASS_COUNT], -1, tl.int32)
    poison = tl.zeros([BLOCK_Q], tl.int32)
    middle = block * BLOCK_Q + BLOCK_Q // 2 + offset

    for IS_EDGE in tl.static_range(2):
        AT = EDGE_AT if IS_EDGE else FULL_AT
        RUN = EDGE if IS_EDGE else FULL
        for run in range(tl.load(AT + plane + block), tl.load(AT + plane + block + 1)):
            start, stop = run_bounds(RUN, run, IS_EDGE)
            for j in range(start * PARTS, stop * PARTS):
                k_row = j * KEYS + tl.arange(0, KEYS)
                k = rows(K, batch, kv_head, j * KEYS, k_b, k_h, k_n, k_len, DIM, KEYS, WIDTH, IS_EDGE,
                         TMA)
                s = score(dot(q, tl.trans(k)), q_row[:, None], k_row[None, :], scale, softcap, offset, slope,
                          BIAS, bias_q, bias_k, q_len, k_len, HAS_BIAS, ALIBI, SOFTCAP)  # (BLOCK_Q, KEYS)
                if IS_EDGE:
                    tl.static_assert(PARTS == 1 or not HAS_BITS)
                    keep = edge_pairs(TILES, EDGE, run, start, j, q_row, k_row, low, high, BITS, q_in_block,
                                      BLOCK_Q, KEYS, HAS_BITS)
                    s = tl.where(keep, s, float("-inf"))
                if MAX_SCORES:
                    # Every CLASSES-th key belongs to one class. A class maximum needs no cross-thread
                    # communication, and its tile leaves few keys to search, which is done by `argmax_kernel`.
                    class_maxima = tl.max(tl.reshape(s, [BLOCK_Q, KEYS // CLASS_COUNT, CLASS_COUNT]), 1)
                    s_max = tl.max(class_maxima, 1)
                    place = j // PARTS
                    if CLASSES == 0:
                        place = tl.min(tl.where(s == class_maxima, k_row[None, :], k_len), 1)[:, None]
                    better = (class_maxima > best) | ((class_maxima == best) & (place < best_at))
                    best = tl.where(better, class_maxima, best)
                    best_at = tl.where(better, place, best_at)
                else:
                    s_max = tl.max(s, 1)
                new_max = s_max * (scale * LOG2E) if LINEAR else s_max
                if GRAIN > 0:
                    tile_max = tl.where(j * KEYS % GRAIN == 0, new_max, tl.maximum(tile_max, new_max))
                    line = maxima_rows.to(tl.int64) * (j * KEYS // GRAIN)
                    tl.store(TILE_MAXIMA + line + q_row, tile_max)
                raised_max = tl.maximum(row_max, new_max)
                base = tl.where(raised_max == float("-inf"), 0.0, raised_max)
                x = s * (scale * LOG2E) - base[:, None] if LINEAR else s - base[:, None]
                p = tl.exp2(x)
                keep_old = tl.exp2(row_max - base)
                if ENTROPIES:
                    # Masked lanes hold x = -inf, and 0 * -inf is NaN; a bias may say -inf too.
                    if IS_EDGE or HAS_BIAS:
                        x = tl.maximum(x, -1e30)
                    energy = (energy + (shift - base) * total) * keep_old + tl.sum(p * x, 1)
                if DISTANCES:
                    away = (middle - k_row).to(tl.float32)
                    distance = distance * keep_old + tl.sum(p * away[None, :], 1)
                total = total * keep_old + tl.sum(p, 1)
                acc = acc * keep_old[:, None]
                v = rows(V, batch, kv_head, j * KEYS, v_b, v_h, v_n, k_len, V_DIM, KEYS, V_WIDTH,
                         IS_EDGE, TMA)
                if IS_EDGE and CAREFUL:
                    clean = finite(v)
                    bad = tl.max((clean != v).to(tl.int32), 1)  # (KEYS,)
                    poison |= tl.max(tl.where(p > 0, bad[None, :], 0), 1)
                    v = clean
                acc = dot(p.to(v.dtype), v, acc)
                row_max, shift = raised_max, base

    # A dead row has total 0 and row_max -inf: output 0, lse -inf.
    alive = total != 0
    sum_log = tl.log2(tl.where(alive, total, 1.0))
    share = tl.where(alive, 1 / tl.where(alive, total, 1.0), 0.0)
    lse = row_max + sum_log
    kept_log = tl.zeros([BLOCK_Q], tl.float32)
    if HAS_SINK:
        sink = tl.load(SINK + head).to(tl.float32) * LOG2E
        highest = tl.maximum(lse, sink)
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        both = safe + tl.log2(tl.exp2(lse - safe) + tl.exp2(sink - safe))
        kept_log = tl.where(alive, lse - both, 0.0)
        lse = both
    kept = tl.exp2(kept_log)
    there = q_row < q_len
    row_at = (batch * heads + head) * q_len + q_row
    out = acc * (share * kept)[:, None]
    if CAREFUL:
        out = tl.where(poison[:, None] > 0, float("nan"), out)
        # With a band of queries, maxima are stored relative to its first query.
        tl.store(DIRTY + dirty_at, 0)
    else:
        tl.store(DIRTY + dirty_at, tl.max(tl.max((out != out).to(tl.int32), 1), 0))
    v_col = tl.arange(0, V_WIDTH)
    out_at = OUT + row_at[:, None] * V_DIM + v_col[None, :]
    tl.store(out_at, out.to(OUT.dtype.element_ty), mask=there[:, None] & (v_col[None, :] < V_DIM))
    tl.store(LSE + row_at, lse * LN2, mask=there)
    if ENTROPIES:
        # lse - E[s], both measured from the maximum so that nothing large cancels; a sink scales all weights
        # alike.
        entropy = sum_log - energy * share - kept_log
        entropy = kept * entropy * LN2
        # Rounding may give a slightly negative entropy: clamp it to 0. NaN stays NaN.
        tl.store(ENTROPY + row_at, tl.where(entropy < 0, 0.0, entropy), mask=there)
    if DISTANCES:
        from_middle = (q_row + offset - middle).to(tl.float32)
        mean = tl.where(alive, distance * share + from_middle, 0.0)
        tl.store(DISTANCE + row_at, kept * mean, mask=there)
    if MAX_SCORES:
        tl.store(MAX_SCORE + row_at, row_max * LN2, mask=there)
        places = row_at[:, None] * CLASS_COUNT + tl.arange(0, CLASS_COUNT)[None, :]
        # Only classes that tie with the row's maximum keep their tile, so more than one is searched only on
        # ties.
        won = best == tl.max(best, 1)[:, None]
        best_at = tl.where(won, best_at, -1).to(ARGMAX.dtype.element_ty)
        tl.store(ARGMAX + places, best_at, mask=there[:, None])
    if FIRST_KEYS > 0:
        tl.static_assert(LINEAR and not HAS_BITS and not TMA)
        k = rows(K, batch, kv_head, 0, k_b, k_h, k_n, k_len, DIM, FIRST_KEYS, WIDTH, True, False)
        s = dot(q, tl.trans(k)) * (scale * LOG2E)
        tl.store(FIRST_WEIGHT + row_at, _first_weight(s, lse, low, tl.minimum(high, early), FIRST_KEYS),
        mask=there)


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def forward_kernel(
    Q, K, V, OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA, DIRTY, SINK, BIAS,
    SLOPES,
    FULL_AT, FULL, EDGE_AT, EDGE, TILES, ORDER, LOW, HIGH, BITS,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, q_blocks, plane_stride, early, maxima_size,
    maxima_rows, maxima_first,
    DIM: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, HAS_BITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ALIBI: tl.constexpr, SOFTCAP: tl.constexpr, HAS_SINK: tl.constexpr, ENTROPIES: tl.constexpr,
    DISTANCES: tl.constexpr, MAX_SCORES: tl.constexpr, CLASSES: tl.constexpr, FIRST_KEYS: tl.constexpr,
    CAREFUL: tl.constexpr, PARTS: tl.constexpr, GRAIN: tl.constexpr, AT_ONCE: tl.constexpr,
):
# fmt: on
    """One program: one block of queries of one head; with CAREFUL, the dirty blocks among AT_ONCE blocks.

    Garbage in V behind the mask would leak into the output, since 0 · NaN is NaN, but checking every tile for
    it is expensive. Instead, the first launch flags blocks whose output is not finite in DIRTY, and a second,
    CAREFUL launch recomputes them. Dirty blocks are rare, so one program of that launch handles several.
    """
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    if CAREFUL:
        dirty = DIRTY + (batch * heads + head) * q_blocks
        first = tl.program_id(0) * AT_ONCE
        some = first + tl.arange(0, AT_ONCE)
        if tl.max(tl.load(dirty + some, mask=some < q_blocks, other=0), 0) == 0:
            return
        for block in range(first, tl.minimum(first + AT_ONCE, q_blocks)):
            if tl.load(dirty + block) != 0:
                _attend(
                    batch, head, block,
                    Q, K, V, OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA,
                    DIRTY, SINK,
                    BIAS, SLOPES, FULL_AT, FULL, EDGE_AT, EDGE, TILES, LOW, HIGH, BITS,
                    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, bias_b, bias_h, bias_q, bias_k,
                    mask_b, mask_h, scale, softcap, q_len, k_len, offset, heads, group, q_blocks,
                    plane_stride, early, maxima_size, maxima_rows, maxima_first, DIM, V_DIM, WIDTH,
                    V_WIDTH, BLOCK_Q,
                    BLOCK_K, TMA, HAS_BITS, HAS_BIAS, ALIBI, SOFTCAP, HAS_SINK, ENTROPIES, DISTANCES,
                    MAX_SCORES,
                    CLASSES, FIRST_KEYS, CAREFUL, PARTS, GRAIN)  # fmt: skip
    else:
        block = tl.load(ORDER + batch * plane_stride + tl.program_id(0))
        _attend(
            batch, head, block,
            Q, K, V, OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA, DIRTY,
            SINK, BIAS,
            SLOPES, FULL_AT, FULL, EDGE_AT, EDGE, TILES, LOW, HIGH, BITS,
            q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
            scale, softcap, q_len, k_len, offset, heads, group, q_blocks, plane_stride, early, maxima_size,
            maxima_rows, maxima_first, DIM, V_DIM, WIDTH, V_WIDTH, BLOCK_Q, BLOCK_K, TMA, HAS_BITS, HAS_BIAS,
            ALIBI, SOFTCAP, HAS_SINK, ENTROPIES, DISTANCES, MAX_SCORES, CLASSES, FIRST_KEYS, CAREFUL, PARTS,
            GRAIN)  # fmt: skip


# fmt: off
@triton.jit(do_not_specialize=_ARGMAX_LENGTHS)
def argmax_kernel(
    Q, K, MAX_TILES, ARGMAX, BIAS, SLOPES, LOW, HIGH, BITS, NUMBER,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, q_blocks, k_blocks, plane_stride,
    DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    HAS_BITS: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
    CLASSES: tl.constexpr,
):
# fmt: on
    """One program: the argmax key of ROWS rows, searched in the tiles that the forward pass returned."""
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    kv_head = head // group
    BIAS += batch * bias_b + head.to(tl.int64) * bias_h
    slope = tl.load(SLOPES + head) if ALIBI else 0.0
    q_row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = q_row < q_len
    row_at = (batch * heads + head) * q_len + q_row
    col = tl.arange(0, WIDTH)
    inside = there[:, None] & (col[None, :] < DIM)
    q_at = Q + batch * q_b + head.to(tl.int64) * q_h + q_row.to(tl.int64)[:, None] * q_n + col[None, :]
    q = tl.load(q_at, mask=inside, other=0.0).to(tl.float32)  # (ROWS, WIDTH)
    K += batch * k_b + kv_head.to(tl.int64) * k_h
    low, high = q_row, q_row
    if not HAS_BITS:
        at = batch * mask_b + head * mask_h + q_row
        low, high = tl.load(LOW + at, mask=there, other=0), tl.load(HIGH + at, mask=there, other=0)
    else:
        BITS += head.to(tl.int64) * mask_h

    classes = tl.arange(0, CLASSES)
    tiles = tl.load(MAX_TILES + row_at[:, None] * CLASSES + classes[None, :], mask=there[:, None], other=-1)
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    max_key = tl.full([ROWS], -1, tl.int32)
    # One round per tie of the row with most ties: nearly always one.
    rounds = tl.max(tl.sum((tiles >= 0).to(tl.int32), 1), 0)
    for _ in range(rounds):
        which = tl.min(tl.where(tiles >= 0, classes[None, :], CLASSES), 1)
        tile = tl.max(tl.where(classes[None, :] == which[:, None], tiles, -1), 1)
        tiles = tl.where(classes[None, :] == which[:, None], -1, tiles)
        for step in range(BLOCK_K // CLASSES):
            key = tile * BLOCK_K + which + step * CLASSES
            seen = there & (tile >= 0) & (key < k_len)
            k_at = K + key.to(tl.int64)[:, None] * k_n + col[None, :]
            k = tl.load(k_at, mask=inside & seen[:, None], other=0.0).to(tl.float32)  # (ROWS, WIDTH)
            s = score(tl.sum(q * k, 1), q_row, key, scale, softcap, offset, slope, BIAS, bias_q, bias_k,
                      tl.where(seen, q_len, 0), k_len, HAS_BIAS, ALIBI, SOFTCAP)
            if HAS_BITS:
                number_at = (batch * plane_stride + q_row // BLOCK_Q) * k_blocks + tile
                number = tl.load(NUMBER + number_at, mask=seen, other=-1)
                cell = which + step * CLASSES
                word_at = (number.to(tl.int64) * BLOCK_Q + q_row % BLOCK_Q) * (BLOCK_K // 32) + cell // 32
                # A tile without bits is full.
                word = tl.load(BITS + word_at, mask=seen & (number >= 0), other=-1)
                seen &= ((word >> (cell % 32)) & 1) != 0
            else:
                seen &= (key >= low) & (key < high)
            better = seen & ((s > row_max) | ((s == row_max) & (key < max_key)) | (max_key < 0))
            row_max = tl.where(better, s, row_max)
            max_key = tl.where(better, key, max_key)
    tl.store(ARGMAX + row_at, max_key.to(tl.int64), mask=there)


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "offset", "heads", "group", "first", "bias_b", "bias_h"])
def first_weight_kernel(
    Q, K, LSE, FIRST_WEIGHT, BIAS, SLOPES, LOW, HIGH,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, first,
    DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
):
# fmt: on
    """The total weight of the first keys, for every row; KEYS is their number rounded up to a power of two.
    """
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    BIAS += batch * bias_b + head.to(tl.int64) * bias_h
    slope = tl.load(SLOPES + head) if ALIBI else 0.0
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    start = tl.program_id(0) * ROWS
    q_row, k_row = start + tl.arange(0, ROWS), tl.arange(0, KEYS)
    there = q_row < q_len
    q = rows(Q, batch, head, start, q_b, q_h, q_n, q_len, DIM, ROWS, WIDTH, True, False)
    k = rows(K, batch, head // group, 0, k_b, k_h, k_n, k_len, DIM, KEYS, WIDTH, True, False)
    s = score(dot(q, tl.trans(k)), q_row[:, None], k_row[None, :], scale, softcap, offset, slope, BIAS,
              bias_q, bias_k, q_len, k_len, HAS_BIAS, ALIBI, SOFTCAP)
    s = s * (scale * LOG2E) if LINEAR else s
    at = batch * mask_b + head * mask_h + q_row
    low, high = tl.load(LOW + at, mask=there, other=0), tl.load(HIGH + at, mask=there, other=0)
    row_at = (batch * heads + head) * q_len + q_row
    lse = tl.load(LSE + row_at, mask=there, other=0.0) * LOG2E
    tl.store(FIRST_WEIGHT + row_at, _first_weight(s, lse, low, tl.minimum(high, first), KEYS), mask=there)
