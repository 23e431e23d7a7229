"""Higher thresholds where neighbouring rows want the same tiles, as they do in real models.

A threshold from tile maxima is good where a row's top keys are spread over tiles. Where they are neighbours
(the last few tokens, a phrase) it is far too low: hundreds of keys reach it. Then nearly all rows of a block
want the same tiles, and a few dense products tell a better threshold.

Grid: (blocks of SIDE rows of a band, maps). In: tile maxima, thresholds, bits of wanted tiles. Out: raised
thresholds, fewer bits, and how many rows want each tile.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.hopper.topk.threshold_two_pass import BITS, FARTHEST, LOG2E, SLACK
from regard.engine.triton.tiles import dot, rows

__all__ = ["shared_tiles_kernel"]

# By how much the same score differs, relatively, as a product and as a tile's maximum: float32's rounding.
TIE = tl.constexpr(5e-7)
# Above its threshold by so many powers of two, a maximum says no more about how useful a tile is.
USEFUL = tl.constexpr(64.0)


@triton.jit
def _bits(WANTED, line, there, words, SIDE: tl.constexpr):
    """Which rows of a block want each of some tiles: (lines, SIDE) of 0 and 1."""
    row = tl.arange(0, SIDE)[None, :]
    word = tl.load(WANTED + line[:, None].to(tl.int64) * words + row // BITS, mask=there[:, None], other=0)
    return (word >> (row % BITS)) & 1


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "heads", "group", "first_row", "band_rows", "lines"])
def shared_tiles_kernel(
    TILE_MAXIMA, LSE, THRESHOLD, WANTED, COUNT, Q, K, LOW, HIGH,
    q_b, q_h, q_n, k_b, k_h, k_n, mask_b, mask_h,
    scale, q_len, k_len, heads, group, first_row, band_rows, lines,
    DIM: tl.constexpr, TOP: tl.constexpr, GRAIN: tl.constexpr, SIDE: tl.constexpr, CLASSES: tl.constexpr,
    CHUNK: tl.constexpr, SHARED: tl.constexpr,
):
# fmt: on
    """Raise the thresholds of a block in which some tile is wanted by SHARED rows or more.

    Of such tiles those three are multiplied whose maxima exceed thresholds the most. Every CLASSES-th of
    their keys is of one class, and the TOP-th largest of a row's class maxima is no more than the TOP-th
    largest of its scores. Of tiles whose maxima tie with that score the first TOP hold its keys.
    """
    at_map = tl.program_id(1).to(tl.int64)
    batch, head = at_map // heads, at_map % heads
    in_band = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    row = first_row + in_band
    there = row < q_len
    mask_at = batch * mask_b + head * mask_h + row
    low = tl.load(LOW + mask_at, mask=there, other=0)
    high = tl.load(HIGH + mask_at, mask=there, other=0)
    first = tl.min(tl.where(high > low, low, k_len), 0) // GRAIN // CHUNK * CHUNK
    stop = (tl.max(tl.where(high > low, high, 0), 0) + GRAIN - 1) // GRAIN
    row_at = at_map * q_len + row
    threshold = tl.load(THRESHOLD + row_at, mask=there, other=float("inf")) * (scale * LOG2E)
    words = band_rows // BITS
    WANTED += at_map * lines * words + tl.program_id(0) * (SIDE // BITS)
    TILE_MAXIMA += at_map * lines * band_rows
    COUNT += at_map * lines

    # The three best tiles so far: how useful in the upper half, which one in the lower, or -1.
    one, two, three = at_map * 0 - 1, at_map * 0 - 1, at_map * 0 - 1
    for start in range(first, stop, CHUNK):
        line = start + tl.arange(0, CHUNK)
        bits = _bits(WANTED, line, line < stop, words, SIDE)  # (CHUNK, SIDE)
        wanting = tl.sum(bits, 1)
        tl.atomic_add(COUNT + line, wanting, mask=wanting > 0, sem="relaxed")
        if tl.max(wanting, 0) >= SHARED:
            some = (bits > 0) & (wanting >= SHARED)[:, None]
            at = TILE_MAXIMA + line[:, None].to(tl.int64) * band_rows + in_band[None, :]
            above = tl.load(at, mask=some, other=float("-inf")) - threshold[None, :]
            useful = tl.sum(tl.where(some, tl.minimum(above, USEFUL), 0.0), 1)
            # Numbers that are not negative have the order of their bits.
            packed = (tl.maximum(useful, 0.0).to(tl.int32, bitcast=True).to(tl.int64) << 32) | line
            packed = tl.where(wanting >= SHARED, packed, -1)
            for _ in range(3):
                best = tl.max(packed, 0)
                packed = tl.where(packed == best, -1, packed)
                three = tl.maximum(three, tl.minimum(two, best))
                two = tl.maximum(two, tl.minimum(one, best))
                one = tl.maximum(one, best)
    if one < 0:
        return

    q = rows(Q, batch, head, first_row + tl.program_id(0) * SIDE, q_b, q_h, q_n, q_len, DIM, SIDE, DIM,
             True, False)
    class_maxima = tl.full([SIDE, CLASSES], float("-inf"), tl.float32)
    for turn in range(3):
        chosen = tl.where(turn == 0, one, tl.where(turn == 1, two, three))
        if chosen >= 0:
            tile_key = (chosen & 0x7FFFFFFF).to(tl.int32) * GRAIN
            k = rows(K, batch, head // group, tile_key, k_b, k_h, k_n, k_len, DIM, GRAIN, DIM, True, False)
            key = tile_key + tl.arange(0, GRAIN)[None, :]
            seen = (key >= low[:, None]) & (key < high[:, None])
            s = tl.where(seen, dot(q, tl.trans(k)), float("-inf"))
            of_classes = tl.max(tl.reshape(s, [SIDE, GRAIN // CLASSES, CLASSES]), 1)
            class_maxima = tl.maximum(class_maxima, of_classes)
    kind = tl.arange(0, CLASSES)[None, :]
    for _ in range(TOP - 1):
        # Of equal ones one goes.
        gone = tl.argmax(class_maxima, 1)[:, None] == kind
        class_maxima = tl.where(gone, float("-inf"), class_maxima)
    level = tl.max(class_maxima, 1) * (scale * LOG2E)

    lse = tl.load(LSE + row_at, mask=there, other=0.0)
    away = tl.abs(tl.where(tl.abs(lse) < float("inf"), lse, 0.0)) * LOG2E
    sure = threshold < float("inf")
    level = tl.maximum(level, threshold + SLACK * (tl.abs(threshold) + away + FARTHEST))
    level = tl.where(sure, level, 0.0)
    raised = tl.maximum(threshold, level - SLACK * (tl.abs(level) + away + FARTHEST))
    tl.store(THRESHOLD + row_at, raised / (scale * LOG2E), mask=there & sure)
    near = TIE * (tl.abs(level) + away + 1)
    ties = tl.zeros([SIDE], tl.int32)
    for start in range(first, stop, CHUNK):
        line = start + tl.arange(0, CHUNK)
        bits = _bits(WANTED, line, line < stop, words, SIDE)
        if tl.max(tl.max(bits, 1), 0) > 0:
            at = TILE_MAXIMA + line[:, None].to(tl.int64) * band_rows + in_band[None, :]
            x = tl.load(at, mask=bits > 0, other=float("-inf"))
            tied = ((bits > 0) & (tl.abs(x - level[None, :]) <= near[None, :])).to(tl.int32)
            rank = ties[None, :] + tl.cumsum(tied, 0)
            ties += tl.sum(tied, 0)
            kept = ((bits > 0) & (x >= raised[None, :]) & ((tied == 0) | (rank <= TOP))).to(tl.int32)
            word = tl.reshape(kept << (tl.arange(0, SIDE) % BITS)[None, :], [CHUNK, SIDE // BITS, BITS])
            to = line[:, None].to(tl.int64) * words + tl.arange(0, SIDE // BITS)[None, :]
            tl.store(WANTED + to, tl.sum(word, 2), mask=(line < stop)[:, None])
            fewer = tl.sum(kept - bits, 1)
            tl.atomic_add(COUNT + line, fewer, mask=fewer < 0, sem="relaxed")
