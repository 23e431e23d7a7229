"""Thresholds, wanted tiles and block maxima for more tiles than one pass can hold, and the selection of keys.

`threshold_kernel`, grid (blocks of queries, maps): thresholds and block maxima from tile maxima.
`wanted_tiles_kernel`: a bit per row and tile. `select_kernel`, grid (groups of rows, maps): the k heaviest of
each row's candidates.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "BITS",
    "FAINTEST",
    "FARTHEST",
    "SLACK",
    "kth_largest_of_row",
    "select_kernel",
    "threshold_kernel",
    "wanted_tiles_kernel",
]

LOG2E = tl.constexpr(1.4426950408889634)
# Thresholds are lowered by this much, relatively, so that a key reaches them even if its product is rounded
# differently than in the forward pass. The forward computes tile maxima as logarithms of weights: exact to
# half of SLACK, plus half of SLACK for each power of two between a score and its base, which differs from the
# logarithm of the row's sum by up to 2 × FARTHEST.
SLACK, FARTHEST = tl.constexpr(1e-6), tl.constexpr(20.0)
# Keys this many powers of two below their row's largest score are not listed: tile maxima are logarithms of
# weights, which underflow there.
FAINTEST = tl.constexpr(-120.0)
# Bits of a word.
BITS = tl.constexpr(32)


@triton.jit
def kth_largest_of_row(x, TOP: tl.constexpr):
    """The TOP-th largest of each row's numbers, or a number that is smaller by a few units of rounding.

    The lowest bits of a number are replaced by its index, so that equal numbers are removed one at a time.
    There are a power of two of them.
    """
    place = tl.arange(0, x.shape[1])[None, :]
    bits = x.to(tl.int32, bitcast=True)
    packed = (_sortable(bits) & -x.shape[1]) | place
    left = packed
    for _ in range(TOP - 1):
        left = tl.where(left == tl.max(left, 1)[:, None], -(2**31), left)
    return tl.min(tl.where(packed >= tl.max(left, 1)[:, None], x, float("inf")), 1)


# fmt: off
@triton.jit(do_not_specialize=[
    "q_len", "heads", "plane_stride", "first_row", "rows", "lines", "block_rows", "block_cols"])
def threshold_kernel(
    TILE_MAXIMA, LSE, BLOCKS, THRESHOLD, BLOCK_MAXIMA, scale, q_len, heads, plane_stride, first_row, rows,
    lines, block_rows, block_cols,
    TOP: tl.constexpr, HAS_BLOCK_MAXIMA: tl.constexpr, CLASSES: tl.constexpr, GRAIN: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):
# fmt: on
    """One program: for one block of queries of a band, the largest weight of each block of GRAIN × GRAIN
    cells, and a lower bound of each row's TOP-th largest score, from the tile maxima in units of log 2.

    BLOCKS holds the tiles that a block of queries visited. Every CLASSES-th tile belongs to one class, and
    the TOP-th largest of a row's class maxima is at most its TOP-th largest score. A row that sees fewer
    classes gets the threshold below which keys are not listed. No score of a dead row exceeds its threshold.
    """
    at_map = tl.program_id(1).to(tl.int64)
    in_band = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row = first_row + in_band
    there = row < q_len
    run = BLOCKS + (at_map // heads * plane_stride + first_row // BLOCK_Q + tl.program_id(0)) * 4
    first, stop = tl.load(run) * (BLOCK_K // GRAIN), tl.load(run + 1) * (BLOCK_K // GRAIN)
    lse = tl.load(LSE + at_map * q_len + row, mask=there, other=float("-inf"))
    alive = lse > float("-inf")
    lse2 = tl.where(alive, lse, float("inf")) * LOG2E
    parts: tl.constexpr = BLOCK_Q // GRAIN
    block = (first_row + tl.program_id(0) * BLOCK_Q) // GRAIN + tl.arange(0, parts)[:, None]
    class_maxima = tl.full([BLOCK_Q, CLASSES], float("-inf"), tl.float32)
    for start in range(0, lines, CLASSES):
        line = start + tl.arange(0, CLASSES)
        visited = (line >= first) & (line < stop)
        at = (at_map * lines + line)[None, :] * rows + in_band[:, None]
        x = tl.load(TILE_MAXIMA + at, mask=there[:, None] & visited[None, :], other=float("-inf"))
        class_maxima = tl.maximum(class_maxima, x)
        if HAS_BLOCK_MAXIMA:
            weight = tl.reshape(x - lse2[:, None], [parts, GRAIN, CLASSES])
            to = BLOCK_MAXIMA + (at_map * block_rows + block) * block_cols + line[None, :]
            tl.store(to, tl.exp2(tl.max(weight, 1)), mask=(line[None, :] < block_cols) & (block < block_rows))
    if TOP > 0:
        faintest = tl.max(class_maxima, 1) + FAINTEST
        threshold = tl.maximum(kth_largest_of_row(class_maxima, TOP), faintest)
        threshold -= SLACK * (tl.abs(threshold) + tl.abs(lse2) + FARTHEST)
        threshold = tl.where(alive & (threshold > float("-inf")), threshold, float("inf"))
        tl.store(THRESHOLD + at_map * q_len + row, threshold / (scale * LOG2E), mask=there)


# fmt: off
@triton.jit(do_not_specialize=["q_len", "heads", "plane_stride", "first_row", "rows", "lines"])
def wanted_tiles_kernel(
    TILE_MAXIMA, THRESHOLD, BLOCKS, WANTED, scale, q_len, heads, plane_stride, first_row, rows, lines,
    GRAIN: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, LINES: tl.constexpr,
):
# fmt: on
    """One program: for each of LINES tiles and each query of a block, one bit: whether the tile's maximum
    reaches the query's threshold. A word holds BITS queries."""
    at_map = tl.program_id(1).to(tl.int64)
    run = BLOCKS + (at_map // heads * plane_stride + first_row // BLOCK_Q + tl.program_id(0)) * 4
    first, stop = tl.load(run) * (BLOCK_K // GRAIN), tl.load(run + 1) * (BLOCK_K // GRAIN)
    in_band = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row, line = first_row + in_band, tl.program_id(2) * LINES + tl.arange(0, LINES)
    threshold = tl.load(THRESHOLD + at_map * q_len + row, mask=row < q_len, other=float("inf"))
    threshold *= scale * LOG2E
    seen = ((line >= first) & (line < stop))[None, :] & (threshold < float("inf"))[:, None]
    at = (at_map * lines + line)[None, :] * rows + in_band[:, None]
    top = tl.load(TILE_MAXIMA + at, mask=seen, other=float("-inf"))
    words: tl.constexpr = BLOCK_Q // BITS
    found = (top >= threshold[:, None]) & seen
    bits = found.to(tl.int32) << (tl.arange(0, BLOCK_Q) % BITS)[:, None]
    bits = tl.sum(tl.reshape(bits, [words, BITS, LINES]), 1)
    word = tl.program_id(0) * words + tl.arange(0, words)
    to = WANTED + (at_map * lines + line)[None, :] * (rows // BITS) + word[:, None]
    tl.store(to, bits, mask=(line < lines)[None, :])


@triton.jit
def _sort_two(a, b):
    """Two numbers, the larger first."""
    return tl.maximum(a, b), tl.minimum(a, b)


@triton.jit
def _sort_eight(eight):
    """Sort eight numbers, largest first."""
    a, b, c, d, e, f, g, h = eight
    a, b = _sort_two(a, b)
    c, d = _sort_two(c, d)
    e, f = _sort_two(e, f)
    g, h = _sort_two(g, h)
    a, c = _sort_two(a, c)
    b, d = _sort_two(b, d)
    e, g = _sort_two(e, g)
    f, h = _sort_two(f, h)
    b, c = _sort_two(b, c)
    f, g = _sort_two(f, g)
    a, e = _sort_two(a, e)
    b, f = _sort_two(b, f)
    c, g = _sort_two(c, g)
    d, h = _sort_two(d, h)
    c, e = _sort_two(c, e)
    d, f = _sort_two(d, f)
    b, c = _sort_two(b, c)
    d, e = _sort_two(d, e)
    f, g = _sort_two(f, g)
    return a, b, c, d, e, f, g, h


@triton.jit
def _merge_eights(one, other):
    """The eight largest of two sorted lists of eight, sorted. Taking the larger of the first list's i-th and
    the second's i-th from the end gives a bitonic sequence; comparing halves, quarters and pairs sorts it."""
    a, b = tl.maximum(one[0], other[7]), tl.maximum(one[1], other[6])
    c, d = tl.maximum(one[2], other[5]), tl.maximum(one[3], other[4])
    e, f = tl.maximum(one[4], other[3]), tl.maximum(one[5], other[2])
    g, h = tl.maximum(one[6], other[1]), tl.maximum(one[7], other[0])
    a, e = _sort_two(a, e)
    b, f = _sort_two(b, f)
    c, g = _sort_two(c, g)
    d, h = _sort_two(d, h)
    a, c = _sort_two(a, c)
    b, d = _sort_two(b, d)
    e, g = _sort_two(e, g)
    f, h = _sort_two(f, h)
    a, b = _sort_two(a, b)
    c, d = _sort_two(c, d)
    e, f = _sort_two(e, f)
    g, h = _sort_two(g, h)
    return a, b, c, d, e, f, g, h


@triton.jit
def _rank(entry, listed):
    """A candidate as one sortable number: larger means heavier, and on ties earlier. 0 if there is none."""
    # Both zeros compare as equal.
    score = (entry >> 32).to(tl.int32).to(tl.float32, bitcast=True) + 0.0
    bits = tl.where(listed, score, float("-inf")).to(tl.int32, bitcast=True)
    return (_sortable(bits).to(tl.int64) << 32) | (~entry & 0xFFFFFFFF)


@triton.jit
def _sortable(bits):
    """Map the bits of floats to integers that sort like the floats. The map is its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _stack_columns(eight):
    """Join eight numbers of each row into one row."""
    a, b, c, d, e, f, g, h = eight
    # The axis that is joined last varies fastest.
    pairs = tl.join(tl.join(tl.join(a, e), tl.join(c, g)), tl.join(tl.join(b, f), tl.join(d, h)))
    return tl.reshape(pairs, [a.shape[0], 8])


# fmt: off
@triton.jit(do_not_specialize=["band_rows", "list_rows", "q_len", "first_row", "exhaustive_blocks"])
def select_kernel(
    LSE, LIST_LENGTH, CANDIDATE_LISTS, WEIGHT, KEY, MAX_SCORE, ARGMAX, EXHAUSTIVE, scale, band_rows,
    list_rows, q_len, first_row,
    exhaustive_blocks,
    TOP: tl.constexpr, MAX_CANDIDATES: tl.constexpr, ROWS: tl.constexpr, SIDE: tl.constexpr,
    MAX_SCORES: tl.constexpr,
    ARGMAXES: tl.constexpr,
):
# fmt: on
    """One program: the TOP heaviest candidates of each of ROWS rows, heaviest first, on ties the earlier key
    first.

    A thread handles one row, and sorts its candidates eight by eight, without cross-thread communication. If
    a row has more than MAX_CANDIDATES, the kernel flags its block of SIDE queries in EXHAUSTIVE. With
    MAX_SCORES the first score is also stored in MAX_SCORE, with ARGMAXES its key in ARGMAX. LIST_LENGTH is
    reset to 0.
    """
    tl.static_assert(TOP <= 8)
    at_map = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < band_rows
    in_band, q_row = at_map * list_rows + row, first_row + row
    length = tl.load(LIST_LENGTH + in_band, mask=there, other=0)
    row_at = at_map * q_len + q_row
    lse = tl.load(LSE + row_at, mask=there, other=0.0) * LOG2E
    # A dead row has lse -inf, and no candidates.
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    most = tl.max(length, 0)
    nothing = _rank(in_band * 0, length < 0)
    best = (nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    for start in range(0, tl.minimum(most, MAX_CANDIDATES), 8):
        # Every place of the list is allocated, written or not, so the loads need no mask.
        at = CANDIDATE_LISTS + in_band * MAX_CANDIDATES + start
        some = (
            _rank(tl.load(at), start < length),
            _rank(tl.load(at + 1), start + 1 < length),
            _rank(tl.load(at + 2), start + 2 < length),
            _rank(tl.load(at + 3), start + 3 < length),
            _rank(tl.load(at + 4), start + 4 < length),
            _rank(tl.load(at + 5), start + 5 < length),
            _rank(tl.load(at + 6), start + 6 < length),
            _rank(tl.load(at + 7), start + 7 < length),
        )
        best = _merge_eights(best, _sort_eight(some))
    chosen = _stack_columns(best)
    score = _sortable((chosen >> 32).to(tl.int32)).to(tl.float32, bitcast=True)
    weight = tl.exp2(score * (scale * LOG2E) - lse[:, None])
    key = tl.where(weight > 0, ~chosen & 0xFFFFFFFF, -1)
    turn = tl.arange(0, 8)[None, :]
    to = row_at[:, None] * TOP + turn
    wanted = there[:, None] & (turn < TOP)
    tl.store(WEIGHT + to, weight, mask=wanted)
    tl.store(KEY + to, key, mask=wanted)
    if MAX_SCORES:
        highest = tl.max(tl.where(turn == 0, score, float("-inf")), 1)
        tl.store(MAX_SCORE + row_at, highest * scale, mask=there)
    if ARGMAXES:
        heaviest = tl.max(tl.where(turn == 0, key, -1), 1)
        tl.store(ARGMAX + row_at, heaviest, mask=there)
    block = at_map * exhaustive_blocks + (first_row + tl.program_id(0) * ROWS) // SIDE
    tl.store(EXHAUSTIVE + block, 1, mask=most > MAX_CANDIDATES)
    tl.store(LIST_LENGTH + in_band, tl.zeros([ROWS], tl.int32), mask=there)
