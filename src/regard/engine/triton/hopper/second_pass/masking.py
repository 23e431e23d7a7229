"""Masks cells of a block that a query doesn't see, with few registers.

Few blocks of the second pass are cut by a mask, but registers reserved for masking would be missing in the
loop over all blocks. So each thread loads the first and last keys of only two of its sixteen queries, clamped
to the block, and gets the rest by shuffles from its warp, four numbers packed in one register.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["mask_block"]

SIDE = gl.constexpr(64)
# Cells of a block that one thread holds.
CELLS = gl.constexpr(32)


def _text() -> str:
    """PTX: mask a block. Of every four cells the first two belong to one key, the others to the key eight
    below.

    Operands: cells (results and inputs); then, each in as many registers: the value of a masked cell, the
    thread's first key in the block, the block's first key and first query, the stop of the queries, the start
    and stop of the keys that all of the block's queries see, and the addresses of each row's first and last
    key.
    """
    other, key, block, query, stop, full, full_stop, lows, highs = (
        f"${CELLS.value * i}" for i in range(2, 11)
    )
    lines = ["{ .reg .pred cut, here; .reg .b32 at, from, mine, four, first, many, lane, bounds<4>;"]
    lines += [".reg .u64 to;", f"add.s32 at, {block}, {SIDE.value}; setp.gt.s32 cut, at, {full_stop};"]
    lines += [f"setp.lt.or.s32 cut, {block}, {full}, cut; @!cut bra.uni done;"]
    lines += [f"mov.u32 lane, %laneid; mad.lo.u32 at, lane, 2, {query};"]
    for i in range(2):
        lines += [f"setp.lt.s32 here, at, {stop};"]
        for bound, table in ((2 * i, lows), (2 * i + 1, highs)):
            lines += [f"mad.wide.s32 to, at, 4, {table}; mov.b32 bounds{bound}, 0;"]
            lines += [f"@here ld.global.b32 bounds{bound}, [to];"]
        lines += ["add.u32 at, at, 1;"]
    for bound in range(4):
        cut = f"bounds{bound}, bounds{bound}"
        lines += [f"sub.s32 {cut}, {block}; max.s32 {cut}, 0; min.s32 {cut}, {SIDE.value};"]
    for low, high in ((0, 1), (2, 3)):
        # The number of keys, instead of the stop.
        lines += [f"sub.s32 bounds{high}, bounds{high}, bounds{low}; max.s32 bounds{high}, bounds{high}, 0;"]
        lines += [f"mad.lo.u32 bounds{low}, bounds{high}, 0x100, bounds{low};"]
    lines += ["mad.lo.u32 mine, bounds2, 0x10000, bounds0; and.b32 from, lane, 3;"]
    for eight in range(8):
        lines += ["shfl.sync.idx.b32 four, mine, from, 31, 0xffffffff; add.u32 from, from, 4;"]
        for column in range(2):
            lines += [f"bfe.u32 first, four, {16 * column}, 8; bfe.u32 many, four, {16 * column + 8}, 8;"]
            for row in range(2):
                cell = f"${4 * eight + 2 * row + column}"
                lines += [f"add.u32 at, {key}, {8 * row}; sub.u32 at, at, first;"]
                lines += [f"setp.lt.u32 here, at, many; selp.f32 {cell}, {cell}, {other}, here;"]
    return "\n".join([*lines, "done: }"])


def _operands() -> str:
    each = CELLS.value
    same = [str(i) for i in range(each)]
    return ",".join([*["=f"] * each, *same, *["f"] * each, *["r"] * (6 * each), *["l"] * (2 * each)])


TEXT, OPERANDS = gl.constexpr(_text()), gl.constexpr(_operands())


@gluon.jit
def mask_block(s, q_first, k_first, full_first, full_stop, row_stop, LOW, HIGH, other):
    """Scores of a block (keys × queries), with `other` where a query may not see a key; a full block is
    returned unchanged."""
    key = gl.arange(0, SIDE, gl.SliceLayout(1, s.type.layout))[:, None]
    key += gl.full([SIDE, SIDE], 0, gl.int32, s.type.layout)
    low, high = LOW.to(gl.int64), HIGH.to(gl.int64)
    return gl.inline_asm_elementwise(
        TEXT, OPERANDS,
        [s, other, key, k_first, q_first, row_stop, full_first, full_stop, low, high],
        dtype=gl.float32, is_pure=False, pack=CELLS)  # fmt: skip
