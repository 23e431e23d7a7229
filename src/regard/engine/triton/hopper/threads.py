"""What threads do on their own: Gluon knows tensors, and no thread of a warp. The texts are in ptx.py."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.marks_ptx import (
    HEAVIEST,
    HEAVIEST_OPERANDS,
    RANK,
    RANK_OPERANDS,
    WANT,
    WANT_OPERANDS,
)
from regard.engine.triton.hopper.ptx import (
    DONE,
    DONE_OPERANDS,
    DOUBT,
    DOUBT_OPERANDS,
    EXCHANGE,
    EXCHANGE_OPERANDS,
    EXPAND,
    EXPAND_OPERANDS,
    INSIST,
    INSIST_OPERANDS,
    KEEP,
    KEEP_OPERANDS,
    LIST,
    LIST_OPERANDS,
    ONES,
    ONES_OPERANDS,
    RAISE,
    RAISE_LATE,
    RAISE_OPERANDS,
    RAISE_TOTAL,
    RAISE_TOTAL_LATE,
    RAISE_TOTAL_OPERANDS,
    RECEIVE,
    RECEIVE_OPERANDS,
    RESCALE_32,
    RESCALE_32_OPERANDS,
    RESCALE_64,
    RESCALE_64_OPERANDS,
    TELL_1,
    TELL_1_OPERANDS,
    TELL_2,
    TELL_2_OPERANDS,
)
from regard.engine.triton.hopper.sharing import threads_of, tile_of

__all__ = [
    "done",
    "doubt",
    "exchange",
    "heaviest",
    "insist",
    "keep_keys",
    "list_keys",
    "number_bits",
    "ones_of",
    "raised",
    "ranked",
    "receive",
    "rescaled",
    "tell",
    "total_raised",
    "want",
]


@gluon.jit
def exchange(p_sums, r_sums, neighbour):
    """Hand out what the keys of two blocks received, to be put together by `receive` one step later."""
    return gl.inline_asm_elementwise(
        EXCHANGE, EXCHANGE_OPERANDS, [p_sums, r_sums, neighbour],
        dtype=(gl.float32, gl.float32), is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def receive(kept, given, neighbour, place, there, to):
    """Store what keys received at the last step."""
    gl.inline_asm_elementwise(
        RECEIVE, RECEIVE_OPERANDS, [kept, given, neighbour, place, there, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def tell(tops, neighbour, place, to, PARTS: gl.constexpr):
    """Store the largest scores of a tile's parts, of which four threads of a row know a part each."""
    text: gl.constexpr = TELL_1 if PARTS == 1 else TELL_2
    operands: gl.constexpr = TELL_1_OPERANDS if PARTS == 1 else TELL_2_OPERANDS
    gl.inline_asm_elementwise(
        text, operands, [tops, neighbour, place, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2 * PARTS)  # fmt: skip


@gluon.jit
def raised(highest, base, LATE: gl.constexpr):
    """What weights are relative to, raised where a thread's highest score is far above it.

    Where that is too far for weights that were made already, it is no number.
    """
    return gl.inline_asm_elementwise(
        RAISE_LATE if LATE else RAISE, RAISE_OPERANDS, [highest, base],
        dtype=gl.float32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def total_raised(highest, base, total, LATE: gl.constexpr):
    """The same, what is left of weights so far, and their sum."""
    left, base, total = gl.inline_asm_elementwise(
        RAISE_TOTAL_LATE if LATE else RAISE_TOTAL, RAISE_TOTAL_OPERANDS, [highest, base, total],
        dtype=(gl.float32, gl.float32, gl.float32), is_pure=False, pack=2)  # fmt: skip
    return base, left, total


@gluon.jit
def done(sums, at):
    """See to it that sums are done before whatever waits next."""
    gl.inline_asm_elementwise(
        DONE, DONE_OPERANDS, [sums, at.to(gl.int64)], dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def doubt(one, two, three, dirty):
    """Note sums that are no numbers, and see to it that they are done."""
    gl.inline_asm_elementwise(
        DOUBT, DOUBT_OPERANDS, [one, two, three, dirty.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def insist(highest, one, two, three):
    """Largest scores as they are, once sums are done."""
    return gl.inline_asm_elementwise(
        INSIST, INSIST_OPERANDS, [highest, one, two, three],
        dtype=gl.float32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def ones_of(bits):
    """How many bits of a word are set."""
    return gl.inline_asm_elementwise(ONES, ONES_OPERANDS, [bits], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def number_bits(bits, first, to):
    """Write the numbers of the bits that are set in words whose first bits have these numbers."""
    gl.inline_asm_elementwise(
        EXPAND, EXPAND_OPERANDS, [bits, first, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=1)  # fmt: skip


@gluon.jit
def list_keys(scores, mark, first, low, high, length, to):
    """List the keys of 64 × 64 scores (`columns_apart`) that are at or above the mark of their row, and that
    the row sees.

    What a thread lists by itself is a place in the list, a key and a score: for `keep_keys`.
    """
    about = (mark, first, low, high, length.to(gl.int64), to.to(gl.int64))
    return gl.inline_asm_elementwise(
        LIST, LIST_OPERANDS, scores + about,
        dtype=(gl.int32, gl.int32, gl.float32), is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def keep_keys(place, key, score, to):
    """Write what `list_keys` has found."""
    gl.inline_asm_elementwise(
        KEEP, KEEP_OPERANDS, [place, key, score, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def rescaled(acc, left, DIM: gl.constexpr, layout: gl.constexpr):
    """Sums by what is left of their weights. Mostly that is all of them, and nothing is done."""
    sums = threads_of(acc, DIM)
    factor = gl.convert_layout(left, gl.SliceLayout(2, sums.type.layout))[:, :, None]
    text: gl.constexpr = RESCALE_64 if DIM == 128 else RESCALE_32
    operands: gl.constexpr = RESCALE_64_OPERANDS if DIM == 128 else RESCALE_32_OPERANDS
    sums = gl.inline_asm_elementwise(
        text, operands, [sums, factor], dtype=gl.float32, is_pure=False, pack=DIM // 2)  # fmt: skip
    return gl.convert_layout(tile_of(sums, DIM), layout)


@gluon.jit
def ranked(x, TOP: gl.constexpr):
    """The TOP-th largest number of each column, TOP being eight at the most.

    Of a column four neighbouring threads have eight numbers each.
    """
    found = gl.inline_asm_elementwise(
        RANK, RANK_OPERANDS, [x], dtype=gl.float32, is_pure=False, pack=8)  # fmt: skip
    rank = gl.arange(0, x.shape[0], gl.SliceLayout(1, x.type.layout)) % 8
    return gl.max(gl.where((rank == TOP - 1)[:, None], found, float("-inf")), 0)


@gluon.jit
def want(x, below, place, stores, to):
    """Store a bit for each row of a word and each line: whether its score is above what is below its mark.

    A thread has four rows of four lines, as the `place`-th of eight, and where it stores a word, that is of
    the line `place // 2`.
    """
    shift = (place & 1) * 4
    first = gl.where((place & 2) > 0, 0x3715, 0x6240)
    second = gl.where((place & 4) > 0, 0x3276, 0x5410)
    gl.inline_asm_elementwise(
        WANT, WANT_OPERANDS, [x, below, shift, first, second, stores.to(gl.int32), to.to(gl.int64)],
        dtype=gl.int8, is_pure=False, pack=16)  # fmt: skip


@gluon.jit
def heaviest(x, factor, offset, place, stores, to):
    """Raise weights to the largest that rows have in each line. Threads are those of `want`."""
    gl.inline_asm_elementwise(
        HEAVIEST, HEAVIEST_OPERANDS, [x, factor, offset, place, stores.to(gl.int32), to.to(gl.int64)],
        dtype=gl.int8, is_pure=False, pack=16)  # fmt: skip
