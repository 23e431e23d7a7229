"""Candidates for top keys: gather the rows that want a tile of keys, and multiply them with it again.

Grid: (maps × programs). In: the bits of wanted tiles, thresholds, q, k. Out: per row a list of (key, score)
pairs that reach the threshold, and its length. Rows are gathered from global memory straight into operand
registers, sixteen bytes at a time. This permutes their dims; a product may add up dims in any order, so the
tile's dims are permuted to match.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.engine.triton.hopper.gluon_compat import barrier
from regard.engine.triton.hopper.thread_columns import split_by_thread, sum_by_thread, unstack
from regard.engine.triton.hopper.thread_ops import append_candidates, expand_bits, flush_candidates, popcount
from regard.engine.triton.hopper.topk.candidates_ptx import MAX_CANDIDATES
from regard.engine.triton.hopper.topk.threshold_two_pass import BITS

__all__ = ["hopper_candidates_kernel", "in_order", "keys_in_order"]

# Queries and keys per product; words of bits that are read at once.
GATHERED, PART, WORDS = gl.constexpr(64), gl.constexpr(64), gl.constexpr(256)


@gluon.jit
def _sum(a, b):
    return a + b


@gluon.jit
def _number(WANTED, NUMBERS, first, step, stop):
    """Write the row numbers of the set bits of every `step`-th word to NUMBERS; returns their count."""
    words: gl.constexpr = gl.BlockedLayout([WORDS // 128], [32], [4], [0])
    count = first * 0
    for start in range(first, stop, WORDS * step):
        word = start + gl.arange(0, WORDS, words) * step
        bits = gl.load(WANTED + word, mask=word < stop, other=0)
        ones = popcount(bits)
        expand_bits(bits, word * BITS, NUMBERS + count + gl.associative_scan(ones, 0, _sum) - ones)
        count += gl.sum(ones, 0)
    return count


@gluon.jit
def in_order(x, ROWS: gl.constexpr, DIM: gl.constexpr):
    """Permute dims into the order of a product whose queries are read eight dims at a time."""
    parts = gl.permute(gl.reshape(x, [ROWS, DIM // 32, 4, 4, 2]), (0, 1, 3, 2, 4))
    return gl.reshape(parts, [ROWS, DIM])


@gluon.jit
def keys_in_order(K, first, k_n, k_len, ROWS: gl.constexpr, DIM: gl.constexpr):
    """Load ROWS keys from key `first` on, with their dims in the order of `in_order`."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // (DIM // 8), DIM // 8], [4, 1], [1, 0])
    key = (first + gl.arange(0, ROWS, gl.SliceLayout(1, layout)))[:, None]
    dim = gl.arange(0, DIM, gl.SliceLayout(0, layout))[None, :]
    return in_order(gl.load(K + key.to(gl.int64) * k_n + dim, mask=key < k_len, other=0.0), ROWS, DIM)


# fmt: off
@gluon.jit
def _queries(
    Q, THRESHOLD, LOW, HIGH, query, there, q_n, k_len,
    DIM: gl.constexpr, MASKED: gl.constexpr, as_read: gl.constexpr,
):
# fmt: on
    """Load some queries, their thresholds and the intervals of keys that they see."""
    at = gl.convert_layout(query, gl.SliceLayout(1, as_read))[:, None].to(gl.int64) * q_n
    q = gl.load(Q + at + gl.arange(0, DIM, gl.SliceLayout(0, as_read))[None, :])
    threshold = gl.load(THRESHOLD + query, mask=there, other=float("inf"))
    low, high = query * 0, query * 0 + k_len
    if MASKED:
        low, high = gl.load(LOW + query), gl.load(HIGH + query)
    return q, threshold, low, high


# fmt: off
@gluon.jit(do_not_specialize=["q_len", "k_len", "heads", "group", "first_row", "rows", "lines", "programs"])
def hopper_candidates_kernel(
    SHARES, WANTED, NUMBERS, THRESHOLD, Q, K, LOW, HIGH, LIST_LENGTH, CANDIDATE_LISTS, q_b, q_h, q_n, k_b,
    k_h, k_n, mask_b,
    mask_h, q_len, k_len, heads, group, first_row, rows, lines, programs,
    DIM: gl.constexpr, GRAIN: gl.constexpr, MASKED: gl.constexpr,
):
# fmt: on
    """One program: one tile of GRAIN keys and a share of the queries that want it. Appends every key that
    reaches a query's threshold to that query's list, with its score. If a list is full, LIST_LENGTH still
    counts further keys.

    A map has `programs` programs. SHARES holds, for each of them, its tile, its number among the programs of
    that tile, and their count (shares.py). NUMBERS is a buffer for query numbers.
    """
    dtype: gl.constexpr = K.dtype.element_ty
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PART, 16])
    as_read: gl.constexpr = gl.DotOperandLayout(0, layout, 8)
    as_wanted: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    by_row: gl.constexpr = gl.SliceLayout(1, layout)

    # Programs of one map have consecutive numbers, so that its queries stay in the cache.
    at_map = (gl.program_id(0) // programs).to(gl.int64)
    SHARES += gl.program_id(0) * 3
    line, part, parts = gl.load(SHARES), gl.load(SHARES + 1), gl.load(SHARES + 2)
    batch, head = at_map // heads, at_map % heads
    words = rows // BITS
    others = part * (words // parts) + gl.minimum(part, words % parts)
    NUMBERS += (at_map * lines + line) * rows + others * BITS
    WANTED += (at_map * lines + line) * words
    count = _number(WANTED, NUMBERS, part, parts, words)
    if count > 0:
        shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([PART, DIM], dtype)
        k_parts = gl.allocate_shared_memory(dtype, [GRAIN // PART, PART, DIM], shared)
        K += batch * k_b + head // group * k_h
        for piece in gl.static_range(GRAIN // PART):
            first_key = line * GRAIN + piece * PART
            k_parts.index(piece).store(keys_in_order(K, first_key, k_n, k_len, PART, DIM))
        fence_async_shared()
        barrier()
        THRESHOLD += at_map * q_len + first_row
        Q += batch * q_b + head * q_h + first_row.to(gl.int64) * q_n
        LOW += batch * mask_b + head * mask_h + first_row
        HIGH += batch * mask_b + head * mask_h + first_row
        LIST_LENGTH += at_map * rows
        CANDIDATE_LISTS += at_map * rows * MAX_CANDIDATES
        zeros = gl.full([GATHERED, PART], 0.0, gl.float32, layout)
        # Four threads share a row. The atomic addition that reserves a place is slow, so a single candidate
        # is written after the next keys are processed.
        one = sum_by_thread(zeros, PART)
        by_four: gl.constexpr = one.type.layout
        shared_row: gl.constexpr = gl.SliceLayout(1, by_four)
        place, key, score = one.to(gl.int32) + MAX_CANDIDATES, one.to(gl.int32), one
        some = gl.arange(0, GATHERED, by_row)
        query = gl.load(NUMBERS + some, mask=some < count, other=0)
        later = gl.load(NUMBERS + GATHERED + some, mask=GATHERED + some < count, other=0)
        before = CANDIDATE_LISTS + gl.convert_layout(query, shared_row)[:, None] * MAX_CANDIDATES
        q, threshold, low, high = _queries(
            Q, THRESHOLD, LOW, HIGH, query, some < count, q_n, k_len, DIM, MASKED, as_read)  # fmt: skip
        for start in range(0, count, GATHERED):
            ready = gl.convert_layout(in_order(q, GATHERED, DIM), as_wanted)
            row = gl.convert_layout(query, shared_row)[:, None]
            length, to = LIST_LENGTH + row, CANDIDATE_LISTS + row * MAX_CANDIDATES
            least = gl.convert_layout(threshold, shared_row)[:, None]
            from_key = gl.convert_layout(low, shared_row)[:, None]
            to_key = gl.convert_layout(high, shared_row)[:, None]
            # Load the next queries, and the numbers of those after them, while these are processed.
            left = count - start - some
            query = later
            q, threshold, low, high = _queries(
                Q, THRESHOLD, LOW, HIGH, query, left > GATHERED, q_n, k_len, DIM, MASKED,
                as_read)  # fmt: skip
            later = gl.load(NUMBERS + start + 2 * GATHERED + some, mask=left > 2 * GATHERED, other=0)
            for i in range(GRAIN // PART):
                keys = k_parts.index(i).permute((1, 0))
                s = warpgroup_mma(ready, keys, zeros, use_acc=False, is_async=True)
                s, ready = warpgroup_mma_wait(0, deps=[s, ready])
                first_key = line * GRAIN + i * PART
                columns = unstack(split_by_thread(s, PART), by_four)
                found = append_candidates(columns, least, first_key, from_key, to_key, length, to)
                flush_candidates(place, key, score, before)
                place, key, score = found
                before = to
        flush_candidates(place, key, score, before)
