"""Leaves fewer tiles wanted where thresholds from tile maxima let too many through, as in real models.

If many tile maxima of a row are equal (a delimiter in every sentence, a repeated token), all these tiles
reach its threshold, but the first few suffice: `drop_ties_kernel`.

A threshold is tight if a row's top keys are spread over many tiles. If they are neighbours (the last few
tokens, a phrase), it is far too low: hundreds of keys reach it. Then nearly all rows of a block want the same
tiles, and a few dense products give a better threshold. `choose_tiles_kernel` counts the rows that want each
tile, and chooses shared tiles for each block of SIDE rows. `raise_thresholds_kernel` multiplies them with the
block. All grids: (blocks of a band, maps).
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

from regard.engine.triton.hopper.topk.threshold_two_pass import (
    BITS,
    FARTHEST,
    LOG2E,
    SLACK,
    kth_largest_of_row,
)
from regard.engine.triton.tiles import dot, rows

__all__ = ["choose_tiles_kernel", "drop_ties_kernel", "raise_thresholds_kernel"]

# The relative difference between a score computed here and the tile maximum of the forward: float32's
# rounding.
TIE = tl.constexpr(5e-7)
# Larger than any tile number.
LAST = tl.constexpr(0x7FFFFFFF)
# The most tiles that are chosen for a block. Others than the best only if they exceed the thresholds of the
# block's rows by this much in all, in units of log 2: less doesn't raise a threshold.
CHOSEN, USEFUL = tl.constexpr(3), tl.constexpr(1.0)


@triton.jit
def _ones(x):
    """The number of set bits of a word."""
    x = x.to(tl.uint32, bitcast=True)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x + (x >> 8) + (x >> 16) + (x >> 24)) & 0xFF).to(tl.int32)


@triton.jit
def _words(WANTED, line, stop, words):
    """Load the two words of bits that say which rows of a block want each tile of a chunk."""
    at = WANTED + line.to(tl.int64) * words
    return tl.load(at, mask=line < stop, other=0), tl.load(at + 1, mask=line < stop, other=0)


@triton.jit
def _bits(one, other, SIDE: tl.constexpr):
    """Two words as (lines, SIDE) of 0 and 1."""
    row = tl.arange(0, SIDE)[None, :]
    return (tl.where(row < BITS, one[:, None], other[:, None]) >> (row % BITS)) & 1


@triton.jit
def _seen(LOW, HIGH, at, there, k_len, GRAIN: tl.constexpr, CHUNK: tl.constexpr):
    """The interval of keys that each row sees, and the range of tiles that any row sees, whose start is
    rounded down to a multiple of CHUNK."""
    low, high = tl.load(LOW + at, mask=there, other=0), tl.load(HIGH + at, mask=there, other=0)
    first = tl.min(tl.where(high > low, low, k_len), 0) // GRAIN // CHUNK * CHUNK
    stop = (tl.max(tl.where(high > low, high, 0), 0) + GRAIN - 1) // GRAIN
    return low, high, first, stop


@triton.jit
def _level(threshold, away):
    """The tile maximum that a threshold was lowered from, and how far maxima of equal scores may differ from
    it. All numbers are in units of log 2; `away` is the distance of the row's lse from 0."""
    level = threshold + SLACK * (tl.abs(threshold) + away + FARTHEST)
    return level, (tl.abs(level) + away + 1) * TIE


@triton.jit
def _away(LSE, row_at, there):
    """The distance of each row's lse from 0, in units of log 2."""
    lse = tl.load(LSE + row_at, mask=there, other=0.0)
    return tl.abs(tl.where(tl.abs(lse) < float("inf"), lse, 0.0)) * LOG2E


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "heads", "first_row", "band_rows", "lines"])
def drop_ties_kernel(
    TILE_MAXIMA, LSE, THRESHOLD, WANTED, LOW, HIGH, mask_b, mask_h,
    scale, q_len, k_len, heads, first_row, band_rows, lines,
    TOP: tl.constexpr, GRAIN: tl.constexpr, SIDE: tl.constexpr, CHUNK: tl.constexpr, MANY: tl.constexpr,
    WIDE: tl.constexpr,
):
# fmt: on
    """One program: where the rows of a block want more than MANY tiles on average, clear the bits of all but
    each row's first TOP tiles of those whose maxima tie with its threshold.

    The TOP-th largest tile maximum is a lower bound of the TOP-th largest score. A key that ties with it is
    among the top keys only if fewer than TOP keys that are larger or earlier are: so the first TOP such tiles
    suffice. Bits are counted WIDE tiles at a time.
    """
    at_map = tl.program_id(1).to(tl.int64)
    in_band = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    row = first_row + in_band
    there = row < q_len
    mask_at = at_map // heads * mask_b + at_map % heads * mask_h + row
    _low, _high, first, stop = _seen(LOW, HIGH, mask_at, there, k_len, GRAIN, CHUNK)  # pyright: ignore[reportGeneralTypeIssues]
    words = band_rows // BITS
    WANTED += at_map * lines * words + tl.program_id(0) * (SIDE // BITS)
    wanted = 0
    for start in range(first, stop, WIDE):
        one, other = _words(WANTED, start + tl.arange(0, WIDE), stop, words)  # pyright: ignore[reportGeneralTypeIssues]
        wanted += tl.sum(_ones(one) + _ones(other), 0)
    if wanted <= MANY * SIDE:
        return
    row_at = at_map * q_len + row
    threshold = tl.load(THRESHOLD + row_at, mask=there, other=float("inf")) * (scale * LOG2E)
    sure = threshold < float("inf")
    level, near = _level(tl.where(sure, threshold, 0.0), _away(LSE, row_at, there))  # pyright: ignore[reportGeneralTypeIssues]
    TILE_MAXIMA += at_map * lines * band_rows
    ties = tl.zeros([SIDE], tl.int32)
    for start in range(first, stop, CHUNK):
        line = start + tl.arange(0, CHUNK)
        one, other = _words(WANTED, line, stop, words)  # pyright: ignore[reportGeneralTypeIssues]
        bits = _bits(one, other, SIDE)
        at = TILE_MAXIMA + line[:, None].to(tl.int64) * band_rows + in_band[None, :]
        x = tl.load(at, mask=bits > 0, other=float("-inf"))
        tied = ((bits > 0) & (tl.abs(x - level[None, :]) <= near[None, :])).to(tl.int32)
        rank = ties[None, :] + tl.cumsum(tied, 0)
        ties += tl.sum(tied, 0)
        _write(WANTED, line, stop, words, bits & ((tied == 0) | (rank <= TOP)).to(tl.int32), CHUNK, SIDE)


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "heads", "first_row", "band_rows", "lines"])
def choose_tiles_kernel(
    TILE_MAXIMA, THRESHOLD, WANTED, COUNT, TILES, LOW, HIGH, mask_b, mask_h,
    scale, q_len, k_len, heads, first_row, band_rows, lines,
    GRAIN: tl.constexpr, SIDE: tl.constexpr, CHUNK: tl.constexpr, SHARED: tl.constexpr,
):
# fmt: on
    """One program: of the tiles that at least SHARED rows of a block want, the three whose maxima exceed the
    thresholds most, on ties the first; -1 for none. COUNT gets the number of rows that want each tile."""
    at_map = tl.program_id(1).to(tl.int64)
    in_band = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    row = first_row + in_band
    mask_at = at_map // heads * mask_b + at_map % heads * mask_h + row
    _low, _high, first, stop = _seen(LOW, HIGH, mask_at, row < q_len, k_len, GRAIN, CHUNK)  # pyright: ignore[reportGeneralTypeIssues]
    words = band_rows // BITS
    WANTED += at_map * lines * words + tl.program_id(0) * (SIDE // BITS)
    # Sortable: how far the maxima exceed the thresholds in the upper bits, the tile, counted from the end, in
    # the lower bits.
    best, second, third = at_map * 0 - 1, at_map * 0 - 1, at_map * 0 - 1
    for start in range(first, stop, CHUNK):
        line = start + tl.arange(0, CHUNK)
        one, other = _words(WANTED, line, stop, words)  # pyright: ignore[reportGeneralTypeIssues]
        wanting = _ones(one) + _ones(other)
        tl.atomic_add(COUNT + at_map * lines + line, wanting, mask=wanting > 0, sem="relaxed")
        if tl.max(wanting, 0) >= SHARED:
            some = (_bits(one, other, SIDE) > 0) & (wanting >= SHARED)[:, None]
            threshold = tl.load(THRESHOLD + at_map * q_len + row, mask=row < q_len, other=0.0)
            at = TILE_MAXIMA + (at_map * lines + line)[:, None] * band_rows + in_band[None, :]
            above = tl.load(at, mask=some, other=0.0) - (threshold * (scale * LOG2E))[None, :]
            useful = tl.sum(tl.where(some, above, 0.0), 1)
            # Numbers that are not negative have the order of their bit patterns.
            useful = tl.maximum(useful, 0.0).to(tl.int32, bitcast=True).to(tl.int64)
            packed = tl.where(wanting >= SHARED, (useful << 32) | (LAST - line), -1)
            for _ in range(CHOSEN):
                found = tl.max(packed, 0)
                packed = tl.where(packed == found, -1, packed)
                third = tl.maximum(third, tl.minimum(second, found))
                second = tl.maximum(second, tl.minimum(best, found))
                best = tl.maximum(best, found)
    to = TILES + (at_map * (band_rows // SIDE) + tl.program_id(0)) * CHOSEN
    tl.store(to, tl.where(best < 0, -1, LAST - (best & LAST)).to(tl.int32))
    tl.store(to + 1, _if_useful(second))
    tl.store(to + 2, _if_useful(third))


@triton.jit
def _if_useful(packed):
    """The tile of a packed number, or -1 if it is of little use."""
    useful = (packed >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return tl.where((packed < 0) | (useful < USEFUL), -1, LAST - (packed & LAST)).to(tl.int32)


# fmt: off
@triton.jit
def _scores(
    q, K, first, low, high, batch, kv_head, k_b, k_h, k_n, k_len, DIM: tl.constexpr, PART: tl.constexpr
):
# fmt: on
    """The unscaled scores of a block with some keys; -inf where a row doesn't see a key."""
    k = rows(K, batch, kv_head, first, k_b, k_h, k_n, k_len, DIM, PART, DIM, True, False)
    key = first + tl.arange(0, PART)[None, :]
    return tl.where((key >= low[:, None]) & (key < high[:, None]), dot(q, tl.trans(k)), float("-inf"))


# fmt: off
@triton.jit(do_not_specialize=["q_len", "k_len", "heads", "group", "first_row", "band_rows", "lines"])
def raise_thresholds_kernel(
    TILE_MAXIMA, LSE, THRESHOLD, WANTED, COUNT, TILES, Q, K, LOW, HIGH,
    q_b, q_h, q_n, k_b, k_h, k_n, mask_b, mask_h,
    scale, q_len, k_len, heads, group, first_row, band_rows, lines,
    DIM: tl.constexpr, TOP: tl.constexpr, GRAIN: tl.constexpr, SIDE: tl.constexpr, CLASSES: tl.constexpr,
    CHUNK: tl.constexpr, USED: tl.constexpr,
):
# fmt: on
    """One program: raise the thresholds of a block with its chosen tiles, at most USED, and clear the bits of
    tiles that are no longer wanted.

    Every CLASSES-th key of these tiles belongs to one class, and the TOP-th largest of a row's class maxima
    is at most its TOP-th largest score. If tile maxima tie with that score, the first TOP such tiles suffice,
    and none is needed after a tile that holds TOP keys by itself.
    """
    at_map = tl.program_id(1).to(tl.int64)
    TILES += (at_map * (band_rows // SIDE) + tl.program_id(0)) * CHOSEN
    if tl.load(TILES) < 0:
        return
    batch, kv_head = at_map // heads, at_map % heads // group
    in_band = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    row = first_row + in_band
    there = row < q_len
    mask_at = batch * mask_b + at_map % heads * mask_h + row
    low, high, first, stop = _seen(LOW, HIGH, mask_at, there, k_len, GRAIN, CHUNK)  # pyright: ignore[reportGeneralTypeIssues]
    q = rows(Q, batch, at_map % heads, first_row + tl.program_id(0) * SIDE, q_b, q_h, q_n, q_len, DIM, SIDE,
             DIM, True, False)
    class_maxima = tl.full([SIDE, CLASSES], float("-inf"), tl.float32)
    for turn in range(USED):
        tile = tl.load(TILES + turn)
        if tile >= 0:
            # SIDE keys at a time: that leaves registers for four programs per multiprocessor.
            for part in range(GRAIN // SIDE):
                first_key = tile * GRAIN + part * SIDE
                s = _scores(q, K, first_key, low, high, batch, kv_head, k_b, k_h, k_n, k_len, DIM, SIDE)
                of_classes = tl.max(tl.reshape(s, [SIDE, SIDE // CLASSES, CLASSES]), 1)
                class_maxima = tl.maximum(class_maxima, of_classes)

    row_at = at_map * q_len + row
    threshold = tl.load(THRESHOLD + row_at, mask=there, other=float("inf")) * (scale * LOG2E)
    away = _away(LSE, row_at, there)
    sure = threshold < float("inf")
    reached = kth_largest_of_row(class_maxima, TOP) * (scale * LOG2E)
    level, near = _level(tl.where(sure, threshold, 0.0), away)  # pyright: ignore[reportGeneralTypeIssues]
    # The chosen tiles hold too few top keys of every row, as where only the first key stands out.
    if tl.max((sure & (reached >= level - near)).to(tl.int32), 0) == 0:
        return
    level = tl.maximum(level, tl.where(sure, reached, float("-inf")))
    raised = tl.maximum(threshold, level - SLACK * (tl.abs(level) + away + FARTHEST))
    tl.store(THRESHOLD + row_at, raised / (scale * LOG2E), mask=there & sure)
    near = TIE * (tl.abs(level) + away + 1)

    words = band_rows // BITS
    WANTED += at_map * lines * words + tl.program_id(0) * (SIDE // BITS)
    TILE_MAXIMA += at_map * lines * band_rows
    COUNT += at_map * lines
    ties = tl.zeros([SIDE], tl.int32)
    for start in range(first, stop, CHUNK):
        line = start + tl.arange(0, CHUNK)
        one, other = _words(WANTED, line, stop, words)
        if tl.max(tl.maximum(one != 0, other != 0).to(tl.int32), 0) > 0:
            bits = _bits(one, other, SIDE)
            at = TILE_MAXIMA + line[:, None].to(tl.int64) * band_rows + in_band[None, :]
            x = tl.load(at, mask=bits > 0, other=float("-inf"))
            kept = ((bits > 0) & (x >= raised[None, :])).to(tl.int32)
            ties += tl.sum(((kept > 0) & (tl.abs(x - level[None, :]) <= near[None, :])).to(tl.int32), 0)
            _keep(WANTED, COUNT, line, stop, words, bits, kept, CHUNK, SIDE)
    if tl.max(ties, 0) > 2:
        # Other warps' bits are read below.
        tl.debug_barrier()
        last = tl.full([SIDE], LAST, tl.int32)
        least = (level - near) / (scale * LOG2E)
        for turn in range(USED):
            tile = tl.load(TILES + turn)
            if tile >= 0:
                held = tl.zeros([SIDE], tl.int32)
                for part in range(GRAIN // SIDE):
                    first_key = tile * GRAIN + part * SIDE
                    s = _scores(q, K, first_key, low, high, batch, kv_head, k_b, k_h, k_n, k_len, DIM, SIDE)
                    held += tl.sum((s >= least[:, None]).to(tl.int32), 1)
                last = tl.where(held >= TOP, tl.minimum(last, tile), last)
        ties = tl.zeros([SIDE], tl.int32)
        for start in range(first, stop, CHUNK):
            line = start + tl.arange(0, CHUNK)
            one, other = _words(WANTED, line, stop, words)
            if tl.max(tl.maximum(one != 0, other != 0).to(tl.int32), 0) > 0:
                bits = _bits(one, other, SIDE)
                at = TILE_MAXIMA + line[:, None].to(tl.int64) * band_rows + in_band[None, :]
                x = tl.load(at, mask=bits > 0, other=float("-inf"))
                tied = ((bits > 0) & (tl.abs(x - level[None, :]) <= near[None, :])).to(tl.int32)
                rank = ties[None, :] + tl.cumsum(tied, 0)
                ties += tl.sum(tied, 0)
                first_ties = (rank <= TOP) & (line[:, None] <= last[None, :])
                kept = ((bits > 0) & ((tied == 0) | first_ties)).to(tl.int32)
                _keep(WANTED, COUNT, line, stop, words, bits, kept, CHUNK, SIDE)


# fmt: off
@triton.jit
def _keep(WANTED, COUNT, line, stop, words, bits, kept, CHUNK: tl.constexpr, SIDE: tl.constexpr):
# fmt: on
    """Write the remaining bits, and subtract the removed rows from the counts."""
    _write(WANTED, line, stop, words, kept, CHUNK, SIDE)
    fewer = tl.sum(kept - bits, 1)
    tl.atomic_add(COUNT + line, fewer, mask=fewer < 0, sem="relaxed")


@triton.jit
def _write(WANTED, line, stop, words, kept, CHUNK: tl.constexpr, SIDE: tl.constexpr):
    """Write the bits of a chunk of tiles, given as (lines, SIDE) of 0 and 1."""
    word = tl.reshape(kept << (tl.arange(0, SIDE) % BITS)[None, :], [CHUNK, SIDE // BITS, BITS])
    to = line[:, None].to(tl.int64) * words + tl.arange(0, SIDE // BITS)[None, :]
    tl.store(WANTED + to, tl.sum(word, 2), mask=(line < stop)[:, None])
