"""PTX for thresholds (threshold.py): order statistics, bits and block maxima."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.thread_ops_ptx import constraints, registers

__all__ = [
    "KTH_LARGEST",
    "KTH_LARGEST_OPERANDS",
    "STORE_BLOCK_MAXIMA",
    "STORE_BLOCK_MAXIMA_OPERANDS",
    "STORE_TILE_BITS",
    "STORE_TILE_BITS_OPERANDS",
]


def _kth_largest() -> str:
    """PTX: sort the eight largest of a row's 32 numbers, of which four neighbouring threads hold eight each.

    Each thread sorts its own. The eight largest of two sorted eights are the larger of one's first and the
    other's last, and so on: two exchanges. The assembler drops results that aren't used.

    Operands: results, the numbers.
    """
    results, numbers = registers(2, 8)
    values = [f"x{i}" for i in range(8)]
    lines = ["{ .reg .f32 x<8>, y<8>, larger;"]
    lines += [f"mov.f32 {value}, {number};" for value, number in zip(values, numbers, strict=True)]
    in_order = [(0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6)]
    in_order += [(0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6)]
    # The larger of two sorted lists, one of them reversed, form a bitonic sequence: compare halves, quarters,
    # pairs.
    rising = [(i, i + step) for step in (4, 2, 1) for i in range(8) if i & step == 0]
    for lane, left in ((0, in_order), (1, rising), (2, rising)):
        if lane:
            lines += [f"shfl.sync.bfly.b32 y{i}, x{i}, {lane}, 31, 0xffffffff;" for i in range(8)]
            lines += [f"max.f32 x{i}, x{i}, y{7 - i};" for i in range(8)]
        for one, other in left:
            lines += [f"max.f32 larger, x{one}, x{other}; min.f32 x{other}, x{one}, x{other};"]
            lines += [f"mov.f32 x{one}, larger;"]
    return "\n".join([*lines, *(f"mov.f32 {to}, x{i};" for i, to in enumerate(results)), "}"])


def _store_tile_bits() -> str:
    """PTX: one bit for each of 32 rows and some lines, set where a score exceeds the number just below the
    threshold.

    Eight neighbouring threads hold four rows each, of four lines. The bits are the signs of differences; NaN
    gives no bit. Two threads combine four bits each into a byte, and the bytes of four lines are exchanged so
    that every other thread ends up with the word of one line.

    Operands: results (none, four to a register), the scores, the numbers just below the thresholds, how far
    the second of two threads shifts its bits, the byte order for each of the two exchanges, whether this
    thread stores a word, and the address.
    """
    results, (scores, thresholds, shift, first, second, stores, to) = _of_lines(7)
    lines = ["{ .reg .pred own; .reg .f32 below; .reg .b32 bits, other, line<4>;"]
    lines += [f"setp.ne.u32 own, {stores[0]}, 0;"]
    for line in range(4):
        lines += [f"mov.b32 line{line}, 0;"]
        for row in reversed(range(4)):
            lines += [f"sub.f32 below, {thresholds[row]}, {scores[4 * line + row]};"]
            lines += [f"mov.b32 bits, below; shf.l.wrap.b32 line{line}, bits, line{line}, 1;"]
    lines += ["prmt.b32 line0, line0, line1, 0x0040; prmt.b32 line2, line2, line3, 0x0040;"]
    lines += [f"prmt.b32 bits, line0, line2, 0x5410; shl.b32 bits, bits, {shift[0]};"]
    lines += ["shfl.sync.bfly.b32 other, bits, 1, 31, 0xffffffff; or.b32 bits, bits, other;"]
    for lane, order in ((2, first), (4, second)):
        lines += [f"shfl.sync.bfly.b32 other, bits, {lane}, 31, 0xffffffff;"]
        lines += [f"prmt.b32 bits, bits, other, {order[0]};"]
    lines += [f"@own st.global.b32 [{to[0]}], bits;"]
    return "\n".join([*lines, *(f"mov.b32 {result}, 0;" for result in results), "}"])


def _store_block_maxima() -> str:
    """PTX: raise stored weights to the largest weight that 32 rows have in some lines.

    Threads hold scores as in `_store_tile_bits`, and every other one ends up with the maximum of one line.
    Weights are not negative, so as integers they have the same order.

    Operands: results (none, four to a register), the scores, what is added to get an exponent, the thread's
    number among eight, whether it stores a weight, and the address.
    """
    results, (scores, offset, place, stores, to) = _of_lines(5)
    lines = ["{ .reg .pred own, odd, late; .reg .b32 bit; .reg .f32 x, give, line<4>;"]
    lines += [f"setp.ne.u32 own, {stores[0]}, 0;"]
    lines += [f"and.b32 bit, {place[0]}, 2; setp.ne.u32 odd, bit, 0;"]
    lines += [f"and.b32 bit, {place[0]}, 4; setp.ne.u32 late, bit, 0;"]
    for line in range(4):
        for row in range(4):
            to_x = f"line{line}" if row == 0 else "x"
            lines += [f"add.f32 {to_x}, {scores[4 * line + row]}, {offset[row]};"]
            lines += [f"max.f32 line{line}, line{line}, x;"] if row else []
    for lane, turn, pairs in ((4, "late", ((0, 2), (1, 3))), (2, "odd", ((0, 1),))):
        for one, other in pairs:
            lines += [f"selp.f32 give, line{one}, line{other}, {turn};"]
            lines += [f"selp.f32 line{one}, line{other}, line{one}, {turn};"]
            lines += [f"shfl.sync.bfly.b32 x, give, {lane}, 31, 0xffffffff; max.f32 line{one}, line{one}, x;"]
    lines += ["shfl.sync.bfly.b32 x, line0, 1, 31, 0xffffffff; max.f32 x, x, line0;"]
    lines += ["ex2.approx.ftz.f32 x, x; setp.gt.and.f32 own, x, 0f00000000, own; mov.b32 bit, x;"]
    lines += [f"@own red.relaxed.gpu.global.max.s32 [{to[0]}], bit;"]
    return "\n".join([*lines, *(f"mov.b32 {result}, 0;" for result in results), "}"])


def _of_lines(count: int) -> tuple[list[str], list[list[str]]]:
    """PTX's names of the results (four to a register) and of `count` operands of four rows by four lines."""
    registers = [f"${i}" for i in range(4 + 16 * count)]
    return registers[:4], [registers[4 + 16 * i : 20 + 16 * i] for i in range(count)]


def _of_lines_operands(constraints: str) -> str:
    return ",".join([*["=&r"] * 4, *(kind for kind in constraints for _ in range(16))])


KTH_LARGEST, KTH_LARGEST_OPERANDS = gl.constexpr(_kth_largest()), gl.constexpr(constraints(("=&f", "f"), 8))
STORE_TILE_BITS, STORE_TILE_BITS_OPERANDS = (
    gl.constexpr(_store_tile_bits()),
    gl.constexpr(_of_lines_operands("ffrrrrl")),
)
STORE_BLOCK_MAXIMA, STORE_BLOCK_MAXIMA_OPERANDS = (
    gl.constexpr(_store_block_maxima()),
    gl.constexpr(_of_lines_operands("ffrrl")),
)
