"""Exhaustive search, for blocks with rows that have more candidates than a list holds.

Many keys tie in such rows, for example where a text repeats one token. Grid: (groups of blocks of a band,
maps). Out: top weights and keys.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.hopper.topk.threshold_two_pass import BITS
from regard.engine.triton.tiles import LN2, LOG2E, dot, rows
from regard.engine.triton.topk.best_list import best_of, empty_list, list_best, store_best

__all__ = ["exhaustive_kernel"]


# fmt: off
@triton.jit(do_not_specialize=[
    "q_len", "k_len", "heads", "group", "first_row", "band_rows", "lines", "exhaustive_blocks"])
def exhaustive_kernel(
    Q, K, LSE, LOW, HIGH, EXHAUSTIVE, THRESHOLD, WANTED, WEIGHT, KEY, MAX_SCORE, ARGMAX,
    q_b, q_h, q_n, k_b, k_h, k_n, mask_b, mask_h,
    scale, q_len, k_len, heads, group, first_row, band_rows, lines, exhaustive_blocks,
    DIM: tl.constexpr, TOP: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, COUNT: tl.constexpr,
    GRAIN: tl.constexpr, CHUNK: tl.constexpr, MAX_SCORES: tl.constexpr, ARGMAXES: tl.constexpr,
):
# fmt: on
    """One program: the TOP heaviest keys of the rows of COUNT blocks of SIDE queries, heaviest first, on ties
    the earlier key first. Only blocks flagged in EXHAUSTIVE are searched, in tiles that one of their rows
    wants.

    Lists hold WIDE keys, TOP rounded up to a power of two. With MAX_SCORES the first score is also stored in
    MAX_SCORE, with ARGMAXES its key in ARGMAX.
    """
    at_map = tl.program_id(1)
    batch, head = (at_map // heads).to(tl.int64), at_map % heads
    first_block, words = first_row // SIDE, band_rows // BITS
    EXHAUSTIVE += at_map.to(tl.int64) * exhaustive_blocks
    WANTED += at_map.to(tl.int64) * lines * words
    begin = first_block + tl.program_id(0) * COUNT
    end = tl.minimum(begin + COUNT, tl.minimum(first_block + band_rows // SIDE, exhaustive_blocks))
    some = begin + tl.arange(0, COUNT)
    if tl.max(tl.load(EXHAUSTIVE + some, mask=some < end, other=0), 0) == 0:
        return
    for block in range(begin, end):
        if tl.load(EXHAUSTIVE + block) > 0:
            row = block * SIDE + tl.arange(0, SIDE)
            there = row < q_len
            row_at = at_map.to(tl.int64) * q_len + row
            lse = tl.load(LSE + row_at, mask=there, other=float("inf")) * LOG2E
            lse = tl.where(lse == float("-inf"), float("inf"), lse)
            threshold = tl.load(THRESHOLD + row_at, mask=there, other=float("inf"))
            mask_at = batch * mask_b + head * mask_h + row
            low = tl.load(LOW + mask_at, mask=there, other=k_len)
            high = tl.load(HIGH + mask_at, mask=there, other=0)
            q = rows(Q, batch, head, block * SIDE, q_b, q_h, q_n, q_len, DIM, SIDE, DIM, True, False)
            best, best_key = empty_list(SIDE, WIDE)
            word = tl.arange(0, SIDE // BITS)[None, :] + (block - first_block) * (SIDE // BITS)
            # Tiles in rising order, so that on ties the earlier key stays.
            for start in range(tl.min(low, 0) // GRAIN, (tl.max(high, 0) + GRAIN - 1) // GRAIN, CHUNK):
                line = start + tl.arange(0, CHUNK)
                at = line[:, None].to(tl.int64) * words + word
                bits = tl.load(WANTED + at, mask=(line < lines)[:, None], other=0)
                wanted = tl.max((bits != 0).to(tl.int32), 1)
                for _ in range(tl.sum(wanted, 0)):
                    next_line = tl.min(tl.where(wanted > 0, line, lines), 0)
                    wanted = tl.where(line == next_line, 0, wanted)
                    for part in range(GRAIN // SIDE):
                        at_key = next_line * GRAIN + part * SIDE
                        k = rows(K, batch, head // group, at_key, k_b, k_h, k_n, k_len, DIM, SIDE, DIM,
                                 True, False)
                        key = at_key + tl.arange(0, SIDE)
                        s = dot(q, tl.trans(k))
                        seen = (key[None, :] >= low[:, None]) & (key[None, :] < high[:, None])
                        x = tl.where(seen & (s >= threshold[:, None]), s * (scale * LOG2E), float("-inf"))
                        best, best_key = list_best(best, best_key, x, key)
            if MAX_SCORES:
                tl.store(MAX_SCORE + row_at, tl.max(best, 1) * LN2, mask=there)
            best -= lse[:, None]
            store_best(best, best_key, WEIGHT + row_at * TOP, KEY + row_at * TOP, there, TOP)
            if ARGMAXES:
                weight, key = best_of(best, best_key)
                tl.store(ARGMAX + row_at, tl.where(weight > 0, key, -1).to(tl.int64), mask=there)
