"""What threads do on their own in the second pass, in PTX: Gluon knows tensors, and no thread of a warp."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

__all__ = ["NOTE", "NOTE_OPERANDS", "RECEIVE", "RECEIVE_OPERANDS", "THREADS", "WARPS"]

# A warpgroup: each of its threads notes what it found of a pair of blocks, each warp which threads found any.
THREADS, WARPS = gl.constexpr(128), gl.constexpr(4)


def _note() -> str:
    """PTX: note which scores of a thread are at or above their marks, if any are.

    A thread has sixteen queries, two neighbours of every eight, and four keys of each: how far their scores
    are above the mark. Their signs become 64 bits, bit 16 n + i for key n and query i. A warp says which of
    its threads have some, and those store theirs: nothing waits, and nobody goes another way.
    Operands: results (none), four scores, the thread, whether there is such a pair of blocks, where a pair's
    warps are, and where its threads are.
    """
    results, *scores, thread, inside, warps, threads = _named(9, 16)
    lines = ["{ .reg .pred some, first; .reg .b32 below, found, n<4>, lo, hi; .reg .u64 to;"]
    for number, score in enumerate(scores):
        lines += [f"shr.u32 n{number}, {score[15]}, 31;"]
        lines += [f"shf.l.wrap.b32 n{number}, {x}, n{number}, 1;" for x in reversed(score[:15])]
    lines += ["prmt.b32 lo, n0, n1, 0x5410; prmt.b32 hi, n2, n3, 0x5410;", "and.b32 below, lo, hi;"]
    lines += [f"setp.ne.u32 some, {inside[0]}, 0; setp.ne.and.u32 some, below, 0xffffffff, some;"]
    lines += ["vote.sync.ballot.b32 found, some, 0xffffffff;", "not.b32 lo, lo; not.b32 hi, hi;"]
    lines += [f"mad.wide.u32 to, {thread[0]}, 8, {threads[0]};", "@some st.global.v2.b32 [to], {lo, hi};"]
    lines += [f"shr.u32 below, {thread[0]}, 5; mad.wide.u32 to, below, 4, {warps[0]};"]
    lines += [f"and.b32 below, {thread[0]}, 31; setp.eq.u32 first, below, 0;"]
    lines += [f"setp.ne.and.u32 first, {inside[0]}, 0, first;", "@first st.global.b32 [to], found;"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


def _receive() -> str:
    """PTX: add up and store what keys received, of which four neighbouring threads know a part each.

    A thread has two keys of each of two blocks. It passes on what it has of one block and keeps the other,
    then of one key and keeps the other: in two exchanges each of the four has all of one key.
    Operands: results (none), two sums of the first block and two of the second, the thread, the place of its
    key, which blocks there are (bits), and where the blocks are.
    """
    results, one, other, thread, place, inside, blocks = _named(7, 2)
    lines = ["{ .reg .pred second, later, there; .reg .b32 bit; .reg .u64 to; .reg .f32 keep<2>, give<2>;"]
    lines += [f"and.b32 bit, {thread[0]}, 1; setp.ne.u32 second, bit, 0;"]
    for i in range(2):
        lines += [f"selp.f32 keep{i}, {other[i]}, {one[i]}, second;"]
        lines += [f"selp.f32 give{i}, {one[i]}, {other[i]}, second;"]
        lines += [f"shfl.sync.bfly.b32 give{i}, give{i}, 1, 31, 0xffffffff;"]
    lines += [f"add.f32 keep{i}, keep{i}, give{i};" for i in range(2)]
    lines += [f"and.b32 bit, {thread[0]}, 2; setp.ne.u32 later, bit, 0;"]
    lines += ["selp.f32 give0, keep0, keep1, later; selp.f32 keep0, keep1, keep0, later;"]
    lines += ["shfl.sync.bfly.b32 give0, give0, 2, 31, 0xffffffff; add.f32 keep0, keep0, give0;"]
    lines += [f"selp.b32 bit, 2, 1, second; and.b32 bit, bit, {inside[0]}; setp.ne.u32 there, bit, 0;"]
    lines += [f"mad.wide.u32 to, {place[0]}, 4, {blocks[0]};", "@there st.global.f32 [to], keep0;"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


def _named(count: int, each: int) -> list[list[str]]:
    """PTX's names of `count` operands of so many registers each."""
    return [[f"${each * number + i}" for i in range(each)] for number in range(count)]


def _kinds(kinds: tuple[str, ...], each: int) -> str:
    return ",".join(kind for kind in kinds for _ in range(each))


NOTE, NOTE_OPERANDS = gl.constexpr(_note()), gl.constexpr(_kinds(("=r", *"ffffrrll"), 16))
RECEIVE, RECEIVE_OPERANDS = gl.constexpr(_receive()), gl.constexpr(_kinds(("=r", *"ffrrrl"), 2))
