"""What threads do on their own: Gluon knows tensors, and no thread of a warp. The texts are in ptx.py."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

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
    KEEP_1,
    KEEP_1_OPERANDS,
    KEEP_2,
    KEEP_2_OPERANDS,
    LIST,
    LIST_OPERANDS,
    ONES,
    ONES_OPERANDS,
    RAISE,
    RAISE_LATE,
    RAISE_OPERANDS,
    RECEIVE,
    RECEIVE_OPERANDS,
    RESCALE_32,
    RESCALE_32_OPERANDS,
    RESCALE_64,
    RESCALE_64_OPERANDS,
    TOPS_1,
    TOPS_1_OPERANDS,
    TOPS_2,
    TOPS_2_OPERANDS,
)
from regard.engine.triton.hopper.sharing import by_thread, threads_of, tile_of

__all__ = [
    "done",
    "doubt",
    "exchange",
    "hand_out",
    "insist",
    "keep",
    "list_keys",
    "number_bits",
    "ones_of",
    "raised",
    "receive",
    "rescaled",
]


@gluon.jit
def exchange(p, r, neighbour, SIDE: gl.constexpr):
    """Hand out what the keys of two blocks received, to be put together by `receive` one step later."""
    return gl.inline_asm_elementwise(
        EXCHANGE, EXCHANGE_OPERANDS, [by_thread(p, SIDE), by_thread(r, SIDE), neighbour],
        dtype=(gl.float32, gl.float32), is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def receive(kept, given, neighbour, place, there, to):
    """Store what keys received at the last step."""
    gl.inline_asm_elementwise(
        RECEIVE, RECEIVE_OPERANDS, [kept, given, neighbour, place, there, to.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip


@gluon.jit
def hand_out(tops, more, neighbour, PARTS: gl.constexpr):
    """Let each thread of a row have the largest score of one part of the tile, as four numbers that `keep`
    puts together one step later."""
    if PARTS == 1:
        tops, more = gl.inline_asm_elementwise(
            TOPS_1, TOPS_1_OPERANDS, [tops, neighbour],
            dtype=(gl.float32, gl.float32), is_pure=False, pack=2)  # fmt: skip
    else:
        tops = gl.inline_asm_elementwise(
            TOPS_2, TOPS_2_OPERANDS, [tops, neighbour], dtype=gl.float32, is_pure=False, pack=4)  # fmt: skip
    return tops, more


@gluon.jit
def keep(tops, more, place, to, PARTS: gl.constexpr):
    """Store the largest scores that were handed out at the last tile."""
    if PARTS == 1:
        gl.inline_asm_elementwise(
            KEEP_1, KEEP_1_OPERANDS, [tops, more, place, to.to(gl.int64)],
            dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip
    else:
        gl.inline_asm_elementwise(
            KEEP_2, KEEP_2_OPERANDS, [tops, place, to.to(gl.int64)],
            dtype=gl.int32, is_pure=False, pack=4)  # fmt: skip


@gluon.jit
def raised(highest, base, LATE: gl.constexpr):
    """What weights are relative to, raised where a thread's highest score is far above it.

    Where that is too far for weights that were made already, it is no number.
    """
    return gl.inline_asm_elementwise(
        RAISE_LATE if LATE else RAISE, RAISE_OPERANDS, [highest, base],
        dtype=gl.float32, is_pure=False, pack=2)  # fmt: skip


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
def list_keys(s, mark, first, low, high, length, to):
    """List the keys of 64 × 64 scores that are at or above the mark of their row, and that the row sees."""
    gl.inline_asm_elementwise(
        LIST, LIST_OPERANDS, [s, mark, first, low, high, length.to(gl.int64), to.to(gl.int64)],
        dtype=gl.int8, is_pure=False, pack=32)  # fmt: skip


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
