"""What threads do on their own: Gluon knows tensors, and no thread of a warp. The texts are in ptx.py."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.candidates_ptx import (
    EXPAND,
    EXPAND_OPERANDS,
    KEEP,
    KEEP_OPERANDS,
    LIST,
    LIST_OPERANDS,
    ONES,
    ONES_OPERANDS,
)
from regard.engine.triton.hopper.columns import threads_of, tile_of
from regard.engine.triton.hopper.marks_ptx import (
    HEAVIEST,
    HEAVIEST_OPERANDS,
    RANK,
    RANK_OPERANDS,
    WANT,
    WANT_OPERANDS,
)
from regard.engine.triton.hopper.ptx import (
    BEGIN,
    BEGIN_OPERANDS,
    CHOOSE_OPERANDS,
    DONE,
    DONE_OPERANDS,
    DOUBT,
    DOUBT_OPERANDS,
    EXCHANGE,
    EXCHANGE_OPERANDS,
    LOGARITHM,
    LOGARITHM_OPERANDS,
    OFFER_1,
    OFFER_1_OPERANDS,
    OFFER_2,
    OFFER_2_OPERANDS,
    RECEIVE,
    RECEIVE_OPERANDS,
    RESCALE,
    RESCALE_OPERANDS,
    SETTLE,
    SETTLE_OPERANDS,
    SETTLE_RESULTS,
    TELL_1,
    TELL_1_OPERANDS,
    TELL_2,
    TELL_2_OPERANDS,
    choose,
)

__all__ = [
    "begun",
    "chosen",
    "done",
    "doubt",
    "exchange",
    "heaviest",
    "keep_keys",
    "list_keys",
    "logarithm",
    "number_bits",
    "offer",
    "ones_of",
    "ranked",
    "receive",
    "rescaled",
    "settled",
    "tell",
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
def offer(tops, neighbour, PARTS: gl.constexpr):
    """Hand out the largest scores of a tile's parts, of which four threads of a row know a part each, to be
    put together by `tell` later."""
    if PARTS == 1:
        return gl.inline_asm_elementwise(
            OFFER_1, OFFER_1_OPERANDS, [tops, neighbour],
            dtype=(gl.float32, gl.float32), is_pure=False, pack=2)  # fmt: skip
    else:
        offered = gl.inline_asm_elementwise(
            OFFER_2, OFFER_2_OPERANDS, [tops, neighbour],
            dtype=gl.float32, is_pure=False, pack=4)  # fmt: skip
        return (offered,)


@gluon.jit
def tell(offered, place, to, PARTS: gl.constexpr):
    """Store the largest scores of a tile's parts."""
    text: gl.constexpr = TELL_1 if PARTS == 1 else TELL_2
    operands: gl.constexpr = TELL_1_OPERANDS if PARTS == 1 else TELL_2_OPERANDS
    where = (place, to.to(gl.int64))
    gl.inline_asm_elementwise(
        text, operands, offered + where,
        dtype=gl.int32, is_pure=False, pack=2 * PARTS)  # fmt: skip


@gluon.jit
def begun(highest, base):
    """What weights are relative to, for rows that have seen nothing so far: their highest score."""
    return gl.inline_asm_elementwise(
        BEGIN, BEGIN_OPERANDS, [highest, base], dtype=gl.float32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def chosen(x, level, THIS: gl.constexpr, other):
    """This number where `x` is at a level, and others elsewhere: two instructions.

    Of many such choices the compiler makes sums of shifted bits, and these are more.
    """
    text: gl.constexpr = choose(THIS)
    return gl.inline_asm_elementwise(
        text, CHOOSE_OPERANDS, [x, level, other], dtype=gl.int32, is_pure=True, pack=1)  # fmt: skip


@gluon.jit
def _first_of(x, layout: gl.constexpr):
    """The first of what threads have along the last axis."""
    for _ in gl.static_range(5):
        x = gl.split(gl.reshape(x, [x.shape[0], 4, x.shape[2] // 2, 2]))[0]
    return gl.convert_layout(gl.reshape(x, [x.shape[0], 4]), layout)


# fmt: off
@gluon.jit
def settled(
    p, acc, most, base, total, energy, distance,
    ENTROPIES: gl.constexpr, DISTANCES: gl.constexpr, TOGETHER: gl.constexpr, LOGS: gl.constexpr,
):
# fmt: on
    """A thread's weights of a tile, the output if it has as many numbers, and what rows have added up, scaled
    down where scores are far above what weights are relative to. Mostly nothing is done.

    What is looked at is a thread's largest weight of each row, or with LOGS its logarithm to base 2. Without
    the output what is left of its weights is in its place.
    """
    rows: gl.constexpr = base.type.layout
    text: gl.constexpr = SETTLE[ENTROPIES, DISTANCES, TOGETHER, LOGS]
    operands: gl.constexpr = SETTLE_OPERANDS[ENTROPIES, DISTANCES, TOGETHER]
    given = (p, acc) if TOGETHER else (p,)
    given += (most[:, :, None], base[:, :, None], total[:, :, None])
    if ENTROPIES:
        given += (energy[:, :, None],)
    if DISTANCES:
        given += (distance[:, :, None],)
    found = gl.inline_asm_elementwise(
        text, operands, given,
        dtype=SETTLE_RESULTS[ENTROPIES + DISTANCES], is_pure=False, pack=p.shape[2] * 2)  # fmt: skip
    acc = found[1] if TOGETHER else _first_of(found[1], rows)
    base, total = _first_of(found[2], rows), _first_of(found[3], rows)
    if ENTROPIES:
        energy = _first_of(found[4], rows)
    if DISTANCES:
        distance = _first_of(found[4 + ENTROPIES], rows)
    return found[0], acc, base, total, energy, distance


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
def logarithm(x):
    """To base 2, as good as the hardware's exponential."""
    return gl.inline_asm_elementwise(
        LOGARITHM, LOGARITHM_OPERANDS, [x], dtype=gl.float32, is_pure=True, pack=1)  # fmt: skip


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
    """An output of 64 dims by what is left of its weights. Mostly that is all, and nothing is done."""
    sums = threads_of(acc, DIM)
    factor = gl.convert_layout(left, gl.SliceLayout(2, sums.type.layout))[:, :, None]
    sums = gl.inline_asm_elementwise(
        RESCALE, RESCALE_OPERANDS, [sums, factor],
        dtype=gl.float32, is_pure=False, pack=DIM // 2)  # fmt: skip
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
def heaviest(x, offset, place, stores, to):
    """Raise weights to the largest that rows have in each line. Threads are those of `want`."""
    gl.inline_asm_elementwise(
        HEAVIEST, HEAVIEST_OPERANDS, [x, offset, place, stores.to(gl.int32), to.to(gl.int64)],
        dtype=gl.int8, is_pure=False, pack=16)  # fmt: skip
