"""Rows that tile maxima say too little about.

`key_threshold_kernel` finds thresholds from classes of keys for rows that see few tiles, such as the first
rows of a causal mask. `exhaustive_kernel` searches the rows that are left key by key: those with more
candidates than the list holds, or with next to no weight outside a few keys. Grids: (blocks, maps). Out:
thresholds; top weights and keys.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.hopper.topk.threshold_two_pass import BITS, SLACK
from regard.engine.triton.tiles import LN2, LOG2E, dot, rows
from regard.engine.triton.topk.best_list import best_of, empty_list, list_best, store_best

__all__ = ["exhaustive_kernel", "key_threshold_kernel"]


# fmt: off
@triton.jit(do_not_specialize=[
    "q_len", "k_len", "heads", "group", "first_row", "band_rows", "lines", "exhaustive_blocks"])
def key_threshold_kernel(
    BLOCKS, Q, K, LSE, LOW, HIGH, THRESHOLD, EXHAUSTIVE, WANTED,
    q_b, q_h, q_n, k_b, k_h, k_n, mask_b, mask_h,
    scale, q_len, k_len, heads, group, first_row, band_rows, lines, exhaustive_blocks,
    DIM: tl.constexpr, TOP: tl.constexpr, GRAIN: tl.constexpr, MOST: tl.constexpr, SIDE: tl.constexpr,
    CLASSES: tl.constexpr,
):
# fmt: on
    """Marks of rows that see fewer than MOST keys, in one of BLOCKS of SIDE queries: the first, or a higher.

    Every CLASSES-th key is of one class, and the TOP-th largest of a row's class maxima is no more than the
    TOP-th largest of its scores. Where there are fewer keys, all are wanted. A row without a threshold wants
    all tiles
    that it sees, and EXHAUSTIVE only keeps blocks in which another row has none.
    """
    at_map = tl.program_id(1)
    block = tl.load(BLOCKS + tl.program_id(0))
    batch, head = (at_map // heads).to(tl.int64), at_map % heads
    row = block * SIDE + tl.arange(0, SIDE)
    there = row < q_len
    row_at = at_map.to(tl.int64) * q_len + row
    lse = tl.load(LSE + row_at, mask=there, other=float("-inf"))
    threshold = tl.load(THRESHOLD + row_at, mask=there, other=0.0)
    mask_at = batch * mask_b + head * mask_h + row
    low = tl.load(LOW + mask_at, mask=there, other=0)
    high = tl.load(HIGH + mask_at, mask=there, other=0)
    alive = lse > float("-inf")
    few = alive & (high - low < MOST)
    unsure = alive & (threshold == float("inf"))
    first, stop = tl.min(tl.where(few, low, k_len), 0), tl.max(tl.where(few, high, 0), 0)

    q = rows(Q, batch, head, block * SIDE, q_b, q_h, q_n, q_len, DIM, SIDE, DIM, True, False)
    tl.static_assert(TOP <= CLASSES)
    class_maxima = tl.full([SIDE, CLASSES], float("-inf"), tl.float32)
    keys: tl.constexpr = 2 * SIDE
    for j in range(first // keys, (stop + keys - 1) // keys):
        k = rows(K, batch, head // group, j * keys, k_b, k_h, k_n, k_len, DIM, keys, DIM, True, False)
        key = j * keys + tl.arange(0, keys)[None, :]
        seen = (key >= low[:, None]) & (key < high[:, None])
        s = tl.where(seen, dot(q, tl.trans(k)), float("-inf"))
        class_maxima = tl.maximum(class_maxima, tl.max(tl.reshape(s, [SIDE, keys // CLASSES, CLASSES]), 1))
    for _ in range(TOP - 1):
        # Of equal ones all go, and the threshold is lower than it need be.
        class_maxima = tl.where(class_maxima == tl.max(class_maxima, 1)[:, None], float("-inf"), class_maxima)
    least = tl.max(class_maxima, 1)
    least -= SLACK * (tl.abs(least) + tl.abs(lse) / scale)
    least = tl.where(high - low < TOP, float("-inf"), least)
    tl.store(THRESHOLD + row_at, tl.where(unsure, least, tl.maximum(threshold, least)), mask=few)
    left = tl.max((unsure & (few == 0)).to(tl.int32), 0)
    tl.store(EXHAUSTIVE + at_map.to(tl.int64) * exhaustive_blocks + block, left)

    words: tl.constexpr = SIDE // BITS
    word = (block * SIDE - first_row) // BITS + tl.arange(0, words)
    bit = (few & unsure).to(tl.int32) << (tl.arange(0, SIDE) % BITS)
    for line in range(first // GRAIN, (stop + GRAIN - 1) // GRAIN):
        wants = (low < (line + 1) * GRAIN) & (high > line * GRAIN)
        bits = tl.sum(tl.reshape(tl.where(wants, bit, 0), [words, BITS]), 1)
        to = WANTED + (at_map.to(tl.int64) * lines + line) * (band_rows // BITS) + word
        tl.store(to, tl.load(to) | bits)


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "heads", "group", "exhaustive_blocks"])
def exhaustive_kernel(
    Q, K, LSE, LOW, HIGH, EXHAUSTIVE, WEIGHT, KEY, MAX_SCORE, ARGMAX, q_b, q_h, q_n, k_b, k_h, k_n, mask_b,
    mask_h,
    scale, q_len, k_len, heads, group, exhaustive_blocks,
    DIM: tl.constexpr, TOP: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, COUNT: tl.constexpr,
    MAX_SCORES: tl.constexpr, ARGMAXES: tl.constexpr,
):
# fmt: on
    """The TOP heaviest keys of the rows of COUNT blocks of SIDE queries, heaviest first, of equal ones the
    earlier key first; only of blocks that EXHAUSTIVE thresholds, of which there are hardly ever any.

    Lists hold WIDE keys, TOP rounded up to a power of two. With MAX_SCORES the first score goes
    to MAX_SCORE too, with ARGMAXES its key to ARGMAX.
    """
    at_map = tl.program_id(1)
    batch, head = (at_map // heads).to(tl.int64), at_map % heads
    EXHAUSTIVE += at_map.to(tl.int64) * exhaustive_blocks
    some = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    if tl.max(tl.load(EXHAUSTIVE + some, mask=some < exhaustive_blocks, other=0), 0) == 0:
        return
    for block in range(tl.program_id(0) * COUNT, tl.minimum(tl.program_id(0) * COUNT + COUNT,
    exhaustive_blocks)):
        if tl.load(EXHAUSTIVE + block) > 0:
            row = block * SIDE + tl.arange(0, SIDE)
            there = row < q_len
            row_at = at_map.to(tl.int64) * q_len + row
            lse = tl.load(LSE + row_at, mask=there, other=float("inf")) * LOG2E
            lse = tl.where(lse == float("-inf"), float("inf"), lse)
            mask_at = batch * mask_b + head * mask_h + row
            low = tl.load(LOW + mask_at, mask=there, other=k_len)
            high = tl.load(HIGH + mask_at, mask=there, other=0)
            q = rows(Q, batch, head, block * SIDE, q_b, q_h, q_n, q_len, DIM, SIDE, DIM, True, False)
            best, best_key = empty_list(SIDE, WIDE)
            for j in range(tl.min(low, 0) // SIDE, (tl.max(high, 0) + SIDE - 1) // SIDE):
                k = rows(K, batch, head // group, j * SIDE, k_b, k_h, k_n, k_len, DIM, SIDE, DIM, True, False)
                key = j * SIDE + tl.arange(0, SIDE)
                x = dot(q, tl.trans(k)) * (scale * LOG2E)
                seen = (key[None, :] >= low[:, None]) & (key[None, :] < high[:, None])
                x = tl.where(seen, x, float("-inf"))
                best, best_key = list_best(best, best_key, x, key, j * SIDE)
            if MAX_SCORES:
                tl.store(MAX_SCORE + row_at, tl.max(best, 1) * LN2, mask=there)
            best -= lse[:, None]
            store_best(best, best_key, WEIGHT + row_at * TOP, KEY + row_at * TOP, there, TOP)
            if ARGMAXES:
                weight, key = best_of(best, best_key)
                tl.store(ARGMAX + row_at, tl.where(weight > 0, key, -1).to(tl.int64), mask=there)
