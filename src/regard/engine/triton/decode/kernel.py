"""Decoding: a few queries against many keys, split over the GPU.

The query heads that share a key head are rows of one block, so that every key is read once.
`decode_kernel`, grid (splits, key heads, batch), writes a partial softmax per split; `merge_kernel`, grid
(rows, key heads, batch), merges them in a fixed order. The k heaviest keys of a row lie in the k tiles with
the largest maxima: `rescore_kernel` computes the scores of those tiles again, `largest_kernel` selects.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.tiles import LN2, LOG2E, dot, finite, rows, score

__all__ = ["decode_kernel", "largest_kernel", "merge_kernel", "rescore_kernel"]

_LENGTHS = [
    "q_len",
    "k_len",
    "offset",
    "heads",
    "group",
    "splits",
    "per_split",
    "first_keys",
    "tiles",
    "bias_b",
    "bias_h",
]


# fmt: off
@triton.jit(do_not_specialize=_LENGTHS)
def decode_kernel(
    Q, K, V, ACC, TOP, TOTAL, ENERGY, DISTANCE, SPLIT_ARGMAX, SPLIT_FIRST_WEIGHT, TILE_MAXIMA, BIAS,
    SLOPES, LOW, HIGH,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group, splits, per_split, first_keys, tiles,
    DIM: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr,
    SOFTCAP: tl.constexpr, STATISTICS: tl.constexpr, MAX_SCORES: tl.constexpr, FIRST_WEIGHTS: tl.constexpr,
    HAS_TILE_MAXIMA: tl.constexpr,
):
# fmt: on
    """One program: one split of the keys of one key head, against all rows (query heads × queries) sharing
    it.

    MAX_SCORES requests the argmax of each row, FIRST_WEIGHTS the weight of the first `first_keys` keys,
    HAS_TILE_MAXIMA the largest score of each tile.
    """
    split, kv_head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    row = tl.arange(0, ROWS)
    there = row < group * q_len
    head, q_row = kv_head * group + row // q_len, row % q_len
    col = tl.arange(0, WIDTH)
    q_at = Q + batch * q_b + head.to(tl.int64)[:, None] * q_h + q_row[:, None] * q_n + col[None, :]
    q = tl.load(q_at, mask=there[:, None] & (col[None, :] < DIM), other=0.0)  # (ROWS, WIDTH)
    at = batch * mask_b + head * mask_h + q_row
    low, high = tl.load(LOW + at, mask=there, other=0), tl.load(HIGH + at, mask=there, other=0)
    # Without a mask the interval has no end, so that it need not be written anew for every length.
    high = tl.minimum(high, k_len)
    slope = tl.load(SLOPES + head, mask=there, other=0.0)[:, None] if ALIBI else 0.0
    bias = BIAS + batch * bias_b + head.to(tl.int64)[:, None] * bias_h

    acc = tl.zeros([ROWS, V_WIDTH], tl.float32)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    shift, energy, distance, first_weight = total, total, total, total
    argmax = tl.full([ROWS], -1, tl.int32)
    row_at = (batch * (heads // group) + kv_head) * ROWS + row
    maxima_at = TILE_MAXIMA + ((batch * heads + head) * q_len + q_row) * tiles
    first = split * per_split
    stop = tl.minimum(first + per_split, k_len)
    # Every row sees the keys in between; tiles that reach beyond them may be partly masked.
    seen_from, seen_to = tl.max(tl.where(there, low, 0), 0), tl.min(tl.where(there, high, k_len), 0)
    full_first = tl.minimum(tl.maximum(tl.cdiv(seen_from, BLOCK_K) * BLOCK_K, first), stop)
    full_stop = tl.maximum(tl.minimum(seen_to // BLOCK_K * BLOCK_K, stop), full_first)
    for IS_EDGE in tl.static_range(2):
        CHECK = IS_EDGE or HAS_BIAS
        begin = first if IS_EDGE else full_first
        length = stop - first - (full_stop - full_first) if IS_EDGE else full_stop - full_first
        for at in range(0, length, BLOCK_K):
            start = begin + at
            if IS_EDGE:
                start = tl.where(start < full_first, start, start + full_stop - full_first)
            k_row = start + tl.arange(0, BLOCK_K)
            k = rows(K, batch, kv_head, start, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH, True, TMA)
            v = rows(V, batch, kv_head, start, v_b, v_h, v_n, k_len, V_DIM, BLOCK_K, V_WIDTH, True, TMA)
            s = score(dot(q, tl.trans(k)), q_row[:, None], k_row[None, :], scale, softcap, offset, slope,
                      bias, bias_q, bias_k, q_len, k_len, HAS_BIAS, ALIBI, SOFTCAP)
            s = s * (scale * LOG2E) if LINEAR else s  # (ROWS, BLOCK_K)
            if IS_EDGE:
                keep = (k_row[None, :] >= low[:, None]) & (k_row[None, :] < high[:, None])
                s = tl.where(keep, s, float("-inf"))
            s_top = tl.max(s, 1)
            if HAS_TILE_MAXIMA:
                tl.store(maxima_at + start // BLOCK_K, s_top, mask=there)
            if MAX_SCORES:
                # On ties the earlier key stays.
                at_top = tl.min(tl.where(s == s_top[:, None], k_row[None, :], k_len), 1)
                better = (s_top > top) | ((s_top == top) & (at_top < argmax))
                argmax = tl.where(better, at_top, argmax)
            raised = tl.maximum(top, s_top)
            base = tl.where(raised == float("-inf"), 0.0, raised) if CHECK else raised
            x = s - base[:, None]
            p = tl.exp2(x)
            keep_old = tl.exp2(top - base)
            if STATISTICS:
                # Masked lanes hold x = -inf, and 0 * -inf is NaN.
                lost = tl.sum(p * (tl.maximum(x, -1e30) if CHECK else x), 1)
                energy = (energy + (shift - base) * total) * keep_old + lost
                away = (q_row[:, None] + offset - k_row[None, :]).to(tl.float32)
                distance = distance * keep_old + tl.sum(p * away, 1)
            if FIRST_WEIGHTS:
                first_weight = first_weight * keep_old
                if start < first_keys:
                    first_weight += tl.sum(tl.where(k_row[None, :] < first_keys, p, 0.0), 1)
            total = total * keep_old + tl.sum(p, 1)
            if CHECK:
                clean = finite(v)
                bad = tl.max((clean != v).to(tl.int32), 1)  # (BLOCK_K,): keys whose value is not finite
                poison = tl.max(tl.where(p > 0, bad[None, :], 0), 1)
                acc = dot(p.to(v.dtype), clean.to(v.dtype), acc * keep_old[:, None])
                acc = tl.where(poison[:, None] > 0, float("nan"), acc)
            else:
                acc = dot(p.to(v.dtype), v, acc * keep_old[:, None])
            top, shift = raised, base

    part = row_at * splits + split
    v_col = tl.arange(0, V_WIDTH)
    tl.store(ACC + part[:, None] * V_WIDTH + v_col[None, :], acc)
    tl.store(TOP + part, top)
    tl.store(TOTAL + part, total)
    if STATISTICS:
        tl.store(ENERGY + part, energy)
        tl.store(DISTANCE + part, distance)
    if MAX_SCORES:
        tl.store(SPLIT_ARGMAX + part, argmax)
    if FIRST_WEIGHTS:
        tl.store(SPLIT_FIRST_WEIGHT + part, first_weight)


# fmt: off
@triton.jit(do_not_specialize=["q_len", "heads", "group", "splits"])
def merge_kernel(
    ACC, TOP, TOTAL, ENERGY, DISTANCE, SPLIT_ARGMAX, SPLIT_FIRST_WEIGHT, SINK, OUT, LSE, ENTROPY,
    MEAN_DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT,
    q_len, heads, group, splits,
    V_DIM: tl.constexpr, V_WIDTH: tl.constexpr, ROWS: tl.constexpr, SPLITS_POW2: tl.constexpr,
    HAS_SINK: tl.constexpr, STATISTICS: tl.constexpr, MAX_SCORES: tl.constexpr, FIRST_WEIGHTS: tl.constexpr,
):
# fmt: on
    """One program: one row, its partial softmaxes merged; SPLITS_POW2 is the number of splits rounded up."""
    row, kv_head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    head = kv_head * group + row // q_len
    split = tl.arange(0, SPLITS_POW2)
    at = ((batch * (heads // group) + kv_head) * ROWS + row) * splits + split
    there = split < splits
    top = tl.load(TOP + at, mask=there, other=float("-inf"))
    total = tl.load(TOTAL + at, mask=there, other=0.0)
    highest = tl.max(top, 0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    share = tl.exp2(top - base)  # (SPLITS_POW2,)
    whole = tl.sum(total * share, 0)
    alive = whole != 0
    sum_log = tl.log2(tl.where(alive, whole, 1.0))
    inverse = tl.where(alive, 1 / tl.where(alive, whole, 1.0), 0.0)
    lse = highest + sum_log
    kept_log = tl.zeros_like(lse)
    if HAS_SINK:
        sink = tl.load(SINK + head).to(tl.float32) * LOG2E
        most = tl.maximum(lse, sink)
        safe = tl.where(most == float("-inf"), 0.0, most)
        both = safe + tl.log2(tl.exp2(lse - safe) + tl.exp2(sink - safe))
        kept_log = tl.where(alive, lse - both, 0.0)
        lse = both
    kept = tl.exp2(kept_log)
    v_col = tl.arange(0, V_WIDTH)
    acc = tl.load(ACC + at[:, None] * V_WIDTH + v_col[None, :], mask=there[:, None], other=0.0)
    out = tl.sum(acc * share[:, None], 0) * (inverse * kept)
    row_at = (batch * heads + head) * q_len + row % q_len
    tl.store(OUT + row_at * V_DIM + v_col, out.to(OUT.dtype.element_ty), mask=v_col < V_DIM)
    tl.store(LSE + row_at, lse * LN2)
    if STATISTICS:
        # Each part measured its energy from its own maximum: rebase all of them to the common one.
        own = tl.where(top == float("-inf"), 0.0, top)
        energy = tl.load(ENERGY + at, mask=there, other=0.0) + (own - base) * total
        entropy = sum_log - tl.sum(energy * share, 0) * inverse - kept_log
        entropy = kept * entropy * LN2
        # Rounding may give a slightly negative entropy: clamp it to 0. NaN stays NaN.
        tl.store(ENTROPY + row_at, tl.where(entropy < 0, 0.0, entropy))
        distance = tl.load(DISTANCE + at, mask=there, other=0.0)
        tl.store(MEAN_DISTANCE + row_at, kept * tl.sum(distance * share, 0) * inverse)
    if MAX_SCORES:
        key = tl.load(SPLIT_ARGMAX + at, mask=there, other=0)
        # Splits are in the order of keys.
        key = tl.min(tl.where(there & (top == highest), key, 0x7FFFFFFF), 0)
        tl.store(MAX_SCORE + row_at, highest * LN2)
        tl.store(ARGMAX + row_at, tl.where(highest == float("-inf"), -1, key).to(tl.int64))
    if FIRST_WEIGHTS:
        first_weight = tl.load(SPLIT_FIRST_WEIGHT + at, mask=there, other=0.0)
        tl.store(FIRST_WEIGHT + row_at, kept * tl.sum(first_weight * share, 0) * inverse)


# fmt: off
@triton.jit(do_not_specialize=["length", "pieces"])
def largest_kernel(
    SCORES, KEYS, LSE, VALUE, KEY, length, pieces,
    COUNT: tl.constexpr, PIECE: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):
# fmt: on
    """One program: the COUNT largest scores of a piece of a row, largest first, on ties the earlier key
    first.

    In the FIRST round the place of a score is its key. In the LAST round there is one piece, and weights are
    written instead of scores; a key with weight 0 becomes -1.
    """
    piece, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = piece * PIECE + tl.arange(0, PIECE)
    s = tl.load(SCORES + row * length + place, mask=place < length, other=float("-inf"))
    key = place if FIRST else tl.load(KEYS + row * length + place, mask=place < length, other=-1)
    lse = tl.load(LSE + row) * LOG2E if LAST else 0.0
    # A dead row has lse -inf, like all its scores.
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    to = (row * pieces + piece) * COUNT
    for number in range(COUNT):
        best = tl.max(s, 0)
        found = tl.min(tl.where(s == best, key, 0x7FFFFFFF), 0)
        s = tl.where(key == found, float("-inf"), s)
        if LAST:
            best = tl.exp2(best - lse)
            # Scores may be rounded differently than in the forward pass. NaN stays NaN.
            best = tl.where(best > 1.0, 1.0, best)
            found = tl.where(best > 0, found, -1)
        tl.store(VALUE + to + number, best)
        tl.store(KEY + to + number, found.to(KEY.dtype.element_ty))


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "offset", "heads", "group", "bias_b", "bias_h"])
def rescore_kernel(
    Q, K, TOP, TILE, SCORE, KEY, BIAS, SLOPES, LOW, HIGH,
    q_b, q_h, q_n, k_b, k_h, k_n, bias_b, bias_h, bias_q, bias_k, mask_b, mask_h,
    scale, softcap, q_len, k_len, offset, heads, group,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_K: tl.constexpr, HAS_BIAS: tl.constexpr,
    ALIBI: tl.constexpr, SOFTCAP: tl.constexpr,
):
# fmt: on
    """One program: the scores of one of the tiles that hold a row's top keys."""
    place, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    q_row, at_map = (row % q_len).to(tl.int32), row // q_len
    head, batch = (at_map % heads).to(tl.int32), at_map // heads
    BIAS += batch * bias_b + head.to(tl.int64) * bias_h
    slope = tl.load(SLOPES + head) if ALIBI else 0.0
    LINEAR: tl.constexpr = not (HAS_BIAS or ALIBI or SOFTCAP)
    at = row * tl.num_programs(0) + place
    tile, top = tl.load(TILE + at), tl.load(TOP + at)
    k_row = tile * BLOCK_K + tl.arange(0, BLOCK_K)
    col = tl.arange(0, WIDTH)
    q = tl.load(Q + batch * q_b + head.to(tl.int64) * q_h + q_row * q_n + col, mask=col < DIM, other=0.0)
    k = rows(K, batch, head // group, tile * BLOCK_K, k_b, k_h, k_n, k_len, DIM, BLOCK_K, WIDTH, True, False)
    s = tl.sum(k.to(tl.float32) * q.to(tl.float32)[None, :], 1)
    s = score(s, q_row, k_row, scale, softcap, offset, slope, BIAS, bias_q, bias_k, q_len, k_len, HAS_BIAS,
              ALIBI, SOFTCAP)
    s = s * (scale * LOG2E) if LINEAR else s
    mask_at = batch * mask_b + head * mask_h + q_row
    # A row with fewer tiles than requested gets some of them twice, with a maximum of -inf.
    high = tl.where(top > float("-inf"), tl.minimum(tl.load(HIGH + mask_at), k_len), 0)
    seen = (k_row >= tl.load(LOW + mask_at)) & (k_row < high)
    to = at * BLOCK_K + tl.arange(0, BLOCK_K)
    tl.store(SCORE + to, tl.where(seen, s, float("-inf")))
    tl.store(KEY + to, k_row)
