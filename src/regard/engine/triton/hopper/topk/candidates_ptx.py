"""PTX for candidates.py: write the numbers of rows that want a tile, and append candidates to lists."""

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

# Places in the list of candidates of each query.
MAX_CANDIDATES = gl.constexpr(64)


def _expand_bits() -> str:
    """PTX: write the numbers of the set bits of a word, one after the other.

    Operands: result (none), the word, the number of its first bit, and the address.
    """
    lines = ["{ .reg .pred more; .reg .b32 left, bit, number; .reg .u64 to;"]
    lines += ["mov.b32 left, $1; mov.b64 to, $3; setp.eq.u32 more, left, 0; @more bra done;"]
    lines += ["again: brev.b32 bit, left; clz.b32 bit, bit; add.u32 number, bit, $2;"]
    lines += ["st.global.b32 [to], number; add.u64 to, to, 4;"]
    lines += ["sub.u32 bit, left, 1; and.b32 left, left, bit; setp.ne.u32 more, left, 0; @more bra again;"]
    return "\n".join([*lines, "done: mov.b32 $0, 0; }"])


def _append_candidates(count: int, places: int) -> str:
    """PTX: reserve places for the keys of two rows whose scores reach the threshold.

    A thread collects its own keys that the row sees as bits, and reserves that many places in the list with
    an atomic addition. Mostly it has one key and does not wait for the place: place, key and score are
    results, and `_flush_candidates` writes them later. Several keys are written here, unless the list is
    full: then none is written, and the row is searched exhaustively. Of a row's keys a thread holds two of
    every eight.

    Operands: results (the place, or the number of places if there is nothing to write; the key; the score),
    the scores of the first keys, of the second ones and so on, the threshold, the tile's first key, the first
    key that the row sees and the stop of these, and the addresses of the list's length and of the list.
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
            # A thread holds the first two of every eight keys.
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
        # A list never crosses a multiple of 2^32 bytes, so only the lower half of the address changes.
        lines += [f"mad.wide.u32 to, {found[row]}, 8, {lists[row]}; mov.b64 {{near, far}}, to;"]
        for number, x in enumerate(own):
            lines += [f"and.b32 key, bits{row}, {1 << number:#x}; setp.ne.u32 hit, key, 0;"]
            lines += [f"add.u32 key, own, {number // 2 * 8 + number % 2}; mov.b64 to, {{near, far}};"]
            lines += [f"@hit st.global.v2.b32 [to], {{key, {x}}}; @hit add.u32 near, near, 8;"]
        lines += [f"mov.b32 {found[row]}, {places};", f"one{row}:"]
    return "\n".join([*lines, "}"])


def _picked(values: list[str], turn: str, to: str) -> list[str]:
    """PTX: select one of 2^n values by the bits of `turn`."""
    lines, bit = [], 1
    while len(values) > 1:
        lines += [f"and.b32 within, {turn}, {bit}; setp.ne.u32 pick, within, 0;"]
        names = [to] if len(values) == 2 else [f"left{i}" for i in range(len(values) // 2)]
        for name, even, odd in zip(names, values[::2], values[1::2], strict=True):
            lines += [f"selp.f32 {name}, {odd}, {even}, pick;"]
        values, bit = names, 2 * bit
    return lines


def _flush_candidates(places: int) -> str:
    """PTX: write the candidates of two rows to the places that `_append_candidates` reserved.

    Operands: results (none), the places (the number of places if there is nothing to write), keys, scores,
    and the addresses of the lists.
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
# By the number of keys of a row that a thread holds.
APPEND_CANDIDATES = gl.constexpr(_append_candidates(16, MAX_CANDIDATES.value))
APPEND_CANDIDATES_OPERANDS = gl.constexpr(constraints(("=&r", "=&r", "=&f", *"f" * 17, *"rrrll"), 2))
FLUSH_CANDIDATES, FLUSH_CANDIDATES_OPERANDS = (
    gl.constexpr(_flush_candidates(MAX_CANDIDATES.value)),
    gl.constexpr(constraints(("=r", *"rrfl"), 2)),
)
