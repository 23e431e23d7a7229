"""Operations of single threads that Gluon has no functions for, as inline PTX (in thread_ops_ptx.py)."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.thread_ops_ptx import (
    EXCHANGE,
    EXCHANGE_OPERANDS,
    FIRST_BASE,
    FIRST_BASE_OPERANDS,
    FLAG_NAN,
    FLAG_NAN_OPERANDS,
    FORCE_NOW,
    FORCE_NOW_OPERANDS,
    LOGARITHM,
    LOGARITHM_OPERANDS,
    OFFER_MAXIMA_1,
    OFFER_MAXIMA_1_OPERANDS,
    OFFER_MAXIMA_2,
    OFFER_MAXIMA_2_OPERANDS,
    RECEIVE,
    RECEIVE_OPERANDS,
    SELECT_EQUAL_OPERANDS,
    STORE_MAXIMA_1,
    STORE_MAXIMA_1_OPERANDS,
    STORE_MAXIMA_2,
    STORE_MAXIMA_2_OPERANDS,
    select_equal_ptx,
)
from regard.engine.triton.hopper.topk.candidates_ptx import (
    APPEND_CANDIDATES,
    APPEND_CANDIDATES_OPERANDS,
    EXPAND_BITS,
    EXPAND_BITS_OPERANDS,
    FLUSH_CANDIDATES,
    FLUSH_CANDIDATES_OPERANDS,
    POPCOUNT,
    POPCOUNT_OPERANDS,
)
from regard.engine.triton.hopper.topk.threshold_ptx import (
    KTH_LARGEST,
    KTH_LARGEST_OPERANDS,
    STORE_BLOCK_MAXIMA,
    STORE_BLOCK_MAXIMA_OPERANDS,
    STORE_TILE_BITS,
    STORE_TILE_BITS_OPERANDS,
)

__all__ = [
    "append_candidates",
    "exchange",
    "expand_bits",
    "first_base",
    "flag_nan",
    "flush_candidates",
    "force_now",
    "kth_largest",
    "logarithm",
    "offer_maxima",
    "popcount",
    "receive",
    "select_equal",
    "store_block_maxima",
    "store_maxima",
    "store_tile_bits",
]


@gluon.jit
def exchange(p_sums, r_sums, neighbour):
    """Exchange the column sums of two blocks between threads; `receive` adds them up one step later."""
    return gl.inline_asm_elementwise(
        EXCHANGE, EXCHANGE_OPERANDS, [p_sums, r_sums, neighbour],
        dtype=(gl.float32, gl.float32), is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def receive(kept, given, neighbour, place, there, to):
    """Add up and store the column sums that were exchanged in the last step."""
    gl.inline_asm_elementwise(
        RECEIVE, RECEIVE_OPERANDS, [kept, given, neighbour, place, there, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def offer_maxima(maxima, neighbour, PARTS: gl.constexpr):
    """Exchange the maxima of a tile's parts between the four threads of a row; `store_maxima` combines them
    later."""
    if PARTS == 1:
        return gl.inline_asm_elementwise(
            OFFER_MAXIMA_1, OFFER_MAXIMA_1_OPERANDS, [maxima, neighbour],
            dtype=(gl.float32, gl.float32), is_pure=False, pack=2)  # fmt: skip
    else:
        offered = gl.inline_asm_elementwise(
            OFFER_MAXIMA_2, OFFER_MAXIMA_2_OPERANDS, [maxima, neighbour],
            dtype=gl.float32, is_pure=False, pack=4)  # fmt: skip
        return (offered,)


@gluon.jit
def store_maxima(offered, place, to, PARTS: gl.constexpr):
    """Combine and store the maxima of a tile's parts."""
    text: gl.constexpr = STORE_MAXIMA_1 if PARTS == 1 else STORE_MAXIMA_2
    operands: gl.constexpr = STORE_MAXIMA_1_OPERANDS if PARTS == 1 else STORE_MAXIMA_2_OPERANDS
    where = (place, to.to(gl.int64))
    gl.inline_asm_elementwise(
        text, operands, offered + where,
        dtype=gl.int32, is_pure=False, pack=2 * PARTS)  # fmt: skip


@gluon.jit
def first_base(highest, base):
    """The base of rows that have none yet: their largest score."""
    return gl.inline_asm_elementwise(
        FIRST_BASE, FIRST_BASE_OPERANDS, [highest, base], dtype=gl.float32, is_pure=False,
        pack=2)  # fmt: skip


@gluon.jit
def select_equal(x, level, THIS: gl.constexpr, other):
    """THIS where `x` equals `level`, else `other`, in two instructions.

    From a chain of `gl.where` the compiler makes sums of shifted bits, which take more instructions.
    """
    text: gl.constexpr = select_equal_ptx(THIS)
    return gl.inline_asm_elementwise(
        text, SELECT_EQUAL_OPERANDS, [x, level, other], dtype=gl.int32, is_pure=True, pack=1)  # fmt: skip


@gluon.jit
def force_now(sums, at):
    """Keep the assembler from moving the computation of these sums behind the next wait."""
    gl.inline_asm_elementwise(
        FORCE_NOW, FORCE_NOW_OPERANDS, [sums, at.to(gl.int64)], dtype=gl.int32, is_pure=False,
        pack=2)  # fmt: skip


@gluon.jit
def flag_nan(one, two, three, dirty):
    """Flag rows whose first sum is NaN, and keep the assembler from moving the sums behind the next wait."""
    gl.inline_asm_elementwise(
        FLAG_NAN, FLAG_NAN_OPERANDS, [one, two, three, dirty.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def logarithm(x):
    """The logarithm to base 2, as exact as the hardware's exponential."""
    return gl.inline_asm_elementwise(
        LOGARITHM, LOGARITHM_OPERANDS, [x], dtype=gl.float32, is_pure=True, pack=1)  # fmt: skip


@gluon.jit
def popcount(bits):
    """The number of set bits of a word."""
    return gl.inline_asm_elementwise(
        POPCOUNT, POPCOUNT_OPERANDS, [bits], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def expand_bits(bits, first, to):
    """Write the numbers of the set bits of words; `first` is the number of each word's first bit."""
    gl.inline_asm_elementwise(
        EXPAND_BITS, EXPAND_BITS_OPERANDS, [bits, first, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=1)  # fmt: skip


@gluon.jit
def append_candidates(scores, threshold, first, low, high, length, to):
    """Append the keys of 64 × 64 scores that reach the threshold of their row and that the row sees.

    If a thread has one such key, its place in the list, the key and the score are returned, for
    `flush_candidates` to write.
    """
    about = (threshold, first, low, high, length.to(gl.int64), to.to(gl.int64))
    return gl.inline_asm_elementwise(
        APPEND_CANDIDATES, APPEND_CANDIDATES_OPERANDS, scores + about,
        dtype=(gl.int32, gl.int32, gl.float32), is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def flush_candidates(place, key, score, to):
    """Write the candidates that `append_candidates` returned."""
    gl.inline_asm_elementwise(
        FLUSH_CANDIDATES, FLUSH_CANDIDATES_OPERANDS, [place, key, score, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def kth_largest(x, TOP: gl.constexpr):
    """The TOP-th largest number of each column, TOP at most eight.

    Four neighbouring threads hold eight numbers of a column each.
    """
    found = gl.inline_asm_elementwise(
        KTH_LARGEST, KTH_LARGEST_OPERANDS, [x], dtype=gl.float32, is_pure=False, pack=8)  # fmt: skip
    rank = gl.arange(0, x.shape[0], gl.SliceLayout(1, x.type.layout)) % 8
    return gl.max(gl.where((rank == TOP - 1)[:, None], found, float("-inf")), 0)


@gluon.jit
def store_tile_bits(x, below, place, stores, to):
    """Store one bit for each row of a word and each line: whether the score exceeds `below`, the number just
    below the row's threshold.

    Each thread holds four rows of four lines and is number `place` of eight. If it `stores` a word, that is
    the word of line `place // 2`.
    """
    shift = (place & 1) * 4
    first = gl.where((place & 2) > 0, 0x3715, 0x6240)
    second = gl.where((place & 4) > 0, 0x3276, 0x5410)
    gl.inline_asm_elementwise(
        STORE_TILE_BITS, STORE_TILE_BITS_OPERANDS, [x, below, shift, first, second, stores.to(gl.int32),
        to.to(gl.int64)],
        dtype=gl.int8, is_pure=False, pack=16)  # fmt: skip


@gluon.jit
def store_block_maxima(x, offset, place, stores, to):
    """Raise each line's stored weight to the maximum over the rows, in the layout of `store_tile_bits`."""
    gl.inline_asm_elementwise(
        STORE_BLOCK_MAXIMA, STORE_BLOCK_MAXIMA_OPERANDS, [x, offset, place, stores.to(gl.int32),
        to.to(gl.int64)],
        dtype=gl.int8, is_pure=False, pack=16)  # fmt: skip
