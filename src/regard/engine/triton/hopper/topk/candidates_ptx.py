"""PTX for candidates.py: numbering the rows that want a tile, and listing keys at or above the threshold."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.thread_ops_ptx import constraints, registers

__all__ = [
    "APPEND_CANDIDATES",
    "APPEND_CANDIDATES_OPERANDS",
    "EXPAND_BITS",
    "EXPAND_BITS_OPERANDS",
    "FLUSH_CANDIDATES",
    "FLUSH_CANDIDATES_OPERANDS",
    "MAX_CANDIDATES",
    "POPCOUNT",
    "POPCOUNT_OPERANDS",
]

# How many candidates for its top keys a query has room for.
MAX_CANDIDATES = gl.constexpr(64)


def _expand_bits() -> str:
    """PTX: write the numbers of the bits that are set in a word, one after the other.

    Operands: result (none), the word, the number of its first bit, and where to write.
    """
    lines = ["{ .reg .pred more; .reg .b32 left, bit, number; .reg .u64 to;"]
    lines += ["mov.b32 left, $1; mov.b64 to, $3; setp.eq.u32 more, left, 0; @more bra done;"]
    lines += ["again: brev.b32 bit, left; clz.b32 bit, bit; add.u32 number, bit, $2;"]
    lines += ["st.global.b32 [to], number; add.u64 to, to, 4;"]
    lines += ["sub.u32 bit, left, 1; and.b32 left, left, bit; setp.ne.u32 more, left, 0; @more bra again;"]
    return "\n".join([*lines, "done: mov.b32 $0, 0; }"])


def _append_candidates(count: int, places: int) -> str:
    """PTX: take places for the keys of two rows whose scores are at or above a threshold.

    A thread notes its own as bits, without those that the row does not see, and takes as many places as there
    are. Mostly that is one, and the thread doesn't wait for its number: its place, key and score are
    results, to be
    written later (`_flush_candidates`). Where there are several, they are written here, unless there are
    no places left:
    then none is, and the row is searched again. Of a row's keys a thread has two of every eight.

    Operands: results (the place, or as many as there are; the key; the score), the scores of the first keys,
    of the second ones and so on, the threshold, the tile's first key, the first key that the row sees and
    the one
    behind the last, and where its length and its list are.
    """
    found, keys, tops, *given = registers(count + 9, 2)
    scores, (thresholds, firsts, lows, highs, lengths, lists) = given[:count], given[count:]
    lines = [
        "{ .reg .pred hit, pick; .reg .u64 to; .reg .b32 own, key, stop, near, far, turn, many<2>, bits<2>;"
    ]
    lines += [f".reg .b32 before, within, behind; .reg .f32 left<{count}>;"]
    lines += ["mov.u32 own, %laneid; and.b32 own, own, 3;", f"mad.lo.u32 own, own, 2, {firsts[0]};"]
    for row in range(2):
        lines += [f"mov.b32 bits{row}, 0; mov.b32 {found[row]}, {places};"]
        for number, both in enumerate(scores):
            lines += [f"setp.ge.f32 hit, {both[row]}, {thresholds[row]};"]
            lines += [f"@hit or.b32 bits{row}, bits{row}, {1 << number:#x};"]
        for bound, bits in ((lows[row], "before"), (highs[row], "behind")):
            # Of eight keys a thread has the first two.
            lines += [f"sub.s32 {bits}, {bound}, own; max.s32 {bits}, {bits}, 0;"]
            lines += [f"and.b32 within, {bits}, 7; min.u32 within, within, 2; shr.u32 {bits}, {bits}, 3;"]
            lines += [f"mad.lo.u32 {bits}, {bits}, 2, within; shl.b32 {bits}, 1, {bits};"]
            lines += [f"sub.u32 {bits}, {bits}, 1;"]
        lines += [f"and.b32 bits{row}, bits{row}, behind; not.b32 before, before;"]
        lines += [f"and.b32 bits{row}, bits{row}, before; popc.b32 many{row}, bits{row};"]
        lines += [f"setp.ne.u32 hit, bits{row}, 0;"]
        lines += [f"@hit atom.relaxed.gpu.global.add.u32 {found[row]}, [{lengths[row]}], many{row};"]
    for row in range(2):
        own = [both[row] for both in scores]
        lines += [f"brev.b32 turn, bits{row}; clz.b32 turn, turn; and.b32 within, turn, 1;"]
        lines += [f"shr.u32 {keys[row]}, turn, 1; mad.lo.u32 {keys[row]}, {keys[row]}, 8, within;"]
        lines += [f"add.u32 {keys[row]}, {keys[row]}, own;", *_picked(own, "turn", tops[row])]
        lines += [f"setp.le.u32 pick, many{row}, 1; @pick bra one{row};"]
        lines += [f"add.u32 stop, {found[row]}, many{row}; setp.gt.u32 hit, stop, {places};"]
        lines += [f"selp.b32 bits{row}, 0, bits{row}, hit;"]
        # A list lies within what the lower half of an address counts.
        lines += [f"mad.wide.u32 to, {found[row]}, 8, {lists[row]}; mov.b64 {{near, far}}, to;"]
        for number, x in enumerate(own):
            lines += [f"and.b32 key, bits{row}, {1 << number:#x}; setp.ne.u32 hit, key, 0;"]
            lines += [f"add.u32 key, own, {number // 2 * 8 + number % 2}; mov.b64 to, {{near, far}};"]
            lines += [f"@hit st.global.v2.b32 [to], {{key, {x}}}; @hit add.u32 near, near, 8;"]
        lines += [f"mov.b32 {found[row]}, {places};", f"one{row}:"]
    return "\n".join([*lines, "}"])


def _picked(values: list[str], turn: str, to: str) -> list[str]:
    """PTX: the value whose turn it is, of as many as a power of two."""
    lines, bit = [], 1
    while len(values) > 1:
        lines += [f"and.b32 within, {turn}, {bit}; setp.ne.u32 pick, within, 0;"]
        names = [to] if len(values) == 2 else [f"left{i}" for i in range(len(values) // 2)]
        for name, even, odd in zip(names, values[::2], values[1::2], strict=True):
            lines += [f"selp.f32 {name}, {odd}, {even}, pick;"]
        values, bit = names, 2 * bit
    return lines


def _flush_candidates(places: int) -> str:
    """PTX: write keys with their scores to the places that `_append_candidates` took, of two rows.

    Operands: results (none), the places, or as many as there are, keys, scores, and where lists are.
    """
    results, found, keys, scores, lists = registers(5, 2)
    lines = ["{ .reg .pred hit; .reg .u64 to;"]
    for row in range(2):
        lines += [f"setp.lt.u32 hit, {found[row]}, {places};"]
        lines += [f"mad.wide.u32 to, {found[row]}, 8, {lists[row]};"]
        lines += [f"@hit st.global.v2.b32 [to], {{{keys[row]}, {scores[row]}}};"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


POPCOUNT, POPCOUNT_OPERANDS = gl.constexpr("popc.b32 $0, $1;"), gl.constexpr("=r,r")
EXPAND_BITS, EXPAND_BITS_OPERANDS = gl.constexpr(_expand_bits()), gl.constexpr("=r,r,r,l")
# By how many keys of a row a thread has.
APPEND_CANDIDATES = gl.constexpr(_append_candidates(16, MAX_CANDIDATES.value))
APPEND_CANDIDATES_OPERANDS = gl.constexpr(constraints(("=&r", "=&r", "=&f", *"f" * 17, *"rrrll"), 2))
FLUSH_CANDIDATES, FLUSH_CANDIDATES_OPERANDS = (
    gl.constexpr(_flush_candidates(MAX_CANDIDATES.value)),
    gl.constexpr(constraints(("=r", *"rrfl"), 2)),
)
