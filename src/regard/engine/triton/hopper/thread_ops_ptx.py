"""The PTX of thread_ops.py, and the constraints of its operands."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = [
    "EXCHANGE",
    "EXCHANGE_OPERANDS",
    "FIRST_BASE",
    "FIRST_BASE_OPERANDS",
    "FLAG_NAN",
    "FLAG_NAN_OPERANDS",
    "FORCE_NOW",
    "FORCE_NOW_OPERANDS",
    "LOGARITHM",
    "LOGARITHM_OPERANDS",
    "LOWEST",
    "NAMED_BARRIER_OPERANDS",
    "OFFER_MAXIMA_1",
    "OFFER_MAXIMA_1_OPERANDS",
    "OFFER_MAXIMA_2",
    "OFFER_MAXIMA_2_OPERANDS",
    "RECEIVE",
    "RECEIVE_OPERANDS",
    "RESCALE",
    "RESCALE_OPERANDS",
    "SELECT_EQUAL_OPERANDS",
    "STORE_MAXIMA_1",
    "STORE_MAXIMA_1_OPERANDS",
    "STORE_MAXIMA_2",
    "STORE_MAXIMA_2_OPERANDS",
    "constraints",
    "named_barrier",
    "registers",
    "select_equal_ptx",
]

# The base of a row that has seen no key yet.
LOWEST = gl.constexpr(-1e36)
# Weights of a tile that one thread holds.
TILE = 64


def _handed_out(one: list[str], other: list[str], thread: str, results: list[str]) -> str:
    """PTX: scatter four numbers over four neighbouring threads, each of which holds a part of every number.

    `one` and `other` are two numbers each. A thread owns one of the four: the lowest bit of its lane selects
    one or other, the next bit the first or second. It keeps its part of that number and sends its parts of
    the other three to their owners. Shuffles go through shared memory and are slow while matrix products use
    it, so the caller adds up the four parts one step later, or when no other work is left.
    """
    lines = ["{ .reg .pred second, later; .reg .b32 bit; .reg .f32 near<2>, far<2>;"]
    lines += [f"and.b32 bit, {thread}, 1; setp.ne.u32 second, bit, 0;"]
    lines += [f"and.b32 bit, {thread}, 2; setp.ne.u32 later, bit, 0;"]
    for i in range(2):
        lines += [f"selp.f32 near{i}, {other[i]}, {one[i]}, second;"]
        lines += [f"selp.f32 far{i}, {one[i]}, {other[i]}, second;"]
    for to, side, lane in zip(results, ("near", "far", "near", "far"), range(4), strict=True):
        here, there = (1, 0) if lane < 2 else (0, 1)
        lines += [f"selp.f32 {to}, {side}{here}, {side}{there}, later;"]
        lines += [f"shfl.sync.bfly.b32 {to}, {to}, {lane}, 31, 0xffffffff;"] if lane else []
    return "\n".join([*lines, "}"])


def _exchange() -> str:
    """PTX: exchange column sums.

    Operands: results (two, two), two sums of the first block and two of the second, the lane.
    """
    kept, given, one, other, thread = registers(5, 2)
    return _handed_out(one, other, thread[0], [*kept, *given])


def _receive() -> str:
    """PTX: add up and store the parts that `_exchange` scattered.

    Operands: results (none), the part that was kept and the parts received, the lane, the offset of the
    thread's key, which of the two blocks exist (bits), and the address of the blocks.
    """
    results, kept, given, thread, place, inside, blocks = registers(7, 2)
    lines = ["{ .reg .pred second, there; .reg .b32 bit; .reg .u64 to; .reg .f32 all, more;"]
    lines += [f"add.f32 all, {kept[0]}, {kept[1]}; add.f32 more, {given[0]}, {given[1]};"]
    lines += ["add.f32 all, all, more;"]
    lines += [f"and.b32 bit, {thread[0]}, 1; setp.ne.u32 second, bit, 0;"]
    lines += [f"selp.b32 bit, 2, 1, second; and.b32 bit, bit, {inside[0]}; setp.ne.u32 there, bit, 0;"]
    lines += [f"mad.wide.u32 to, {place[0]}, 4, {blocks[0]};", "@there st.global.f32 [to], all;"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


def _offer_maxima(parts: int) -> str:
    """PTX: give each of the four threads of a row the maximum of one part of a tile.

    The tile has one part or two, and a thread holds two rows of each. Operands: results (four: the maxima of
    its own part that the thread and its neighbours hold), the scores, the lane.
    """
    *results, scores, thread = registers(2 // parts + 2, 2 * parts)
    one, other = scores[::2] * (2 // parts), scores[1::2] * (2 // parts)
    return _handed_out(one, other, thread[0], [to for some in results for to in some])


def _store_maxima(parts: int) -> str:
    """PTX: combine and store the maxima that `_offer_maxima` scattered.

    Operands: results (none), the four numbers, the offset at which the thread stores (negative if it stores
    nothing), and the address of the maxima.
    """
    results, *given, place, maxima = registers(2 // parts + 3, 2 * parts)
    one, two, three, four = (x for some in given for x in some)
    lines = ["{ .reg .pred own; .reg .u64 to; .reg .f32 top, more;"]
    lines += [f"max.f32 top, {one}, {two}; max.f32 more, {three}, {four}; max.f32 top, top, more;"]
    lines += [f"setp.ge.s32 own, {place[0]}, 0; mad.wide.s32 to, {place[0]}, 4, {maxima[0]};"]
    lines += ["@own st.global.f32 [to], top;"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


@gluon.constexpr_function
def named_barrier(how: str, warpgroups: int) -> str:
    """PTX: arrive at a named barrier ("arrive"), or wait there for all others ("sync").

    The participants are `warpgroups` computing warpgroups and the loading warp. Operands: result (none), the
    barrier.
    """
    return f"bar.{how} $1, {warpgroups * 128 + 32}; mov.b32 $0, 0;"


@gluon.constexpr_function
def select_equal_ptx(this: int) -> str:
    """PTX: select a constant where two numbers are equal. Operands: result, the two numbers, the result where
    they differ."""
    return f"{{ .reg .pred equal; setp.eq.f32 equal, $1, $2; selp.b32 $0, {this}, $3, equal; }}"


def _first_base() -> str:
    """PTX: the base of rows that have none yet: the largest score of their four threads. Each thread holds
    two rows.

    Operands: results, the thread's largest scores, the bases so far.
    """
    results, mine, before = registers(3, 2)
    lines = ["{ .reg .pred none<2>, some; .reg .f32 other;"]
    for i in range(2):
        lines += [f"mov.f32 {results[i]}, {before[i]}; setp.le.f32 none{i}, {before[i]}, {LOWEST.value};"]
    lines += ["or.pred some, none0, none1; vote.sync.any.pred some, some, 0xffffffff; @!some bra done;"]
    for i in range(2):
        lines += [f"selp.f32 {results[i]}, {mine[i]}, {before[i]}, none{i};"]
        for lane in (1, 2):
            lines += [f"shfl.sync.bfly.b32 other, {results[i]}, {lane}, 31, 0xffffffff;"]
            lines += [f"max.f32 {results[i]}, {results[i]}, other;"]
        lines += [f"max.f32 {results[i]}, {results[i]}, {before[i]};"]
    return "\n".join([*lines, "done: }"])


def _flag_nan() -> str:
    """PTX: flag rows whose first sum is NaN, because a score was. If scores leap, the other sums may be NaN
    until `rescale_ptx.py` computes them again.

    The assembler moves instructions without side effects past the next wait. This code has side effects, so
    the sums must be computed before it: the first is tested to store a flag, the others to issue a prefetch,
    which is executed only if one is NaN and changes no result. The assembler never moves instructions across
    a `bar.warp.sync`; the threads are converged here, so the synchronisation costs nothing.

    Operands: results (none), three sums of two rows each, and the address of the flag.
    """
    results, first, *others, dirty = registers(5, 2)
    lines = ["{ .reg .pred bad, odd; .reg .b32 one;", f"setp.nan.f32 bad, {first[0]}, {first[1]};"]
    lines += [f"setp.nan.f32 odd, {others[0][0]}, {others[0][1]};"]
    lines += [f"setp.nan.or.f32 odd, {others[1][0]}, {others[1][1]}, odd;"]
    lines += [f"mov.b32 one, 1; @bad st.global.b32 [{dirty[0]}], one; @odd prefetch.global.L2 [{dirty[0]}];"]
    lines += ["bar.warp.sync 0xffffffff;"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


def _force_now() -> str:
    """PTX: force the assembler to compute two sums before this point.

    It may move instructions without side effects. A prefetch has side effects; this one is executed only if a
    sum is NaN, and changes no result. Operands: results (none), the sums, an address.
    """
    results, sums, at = registers(3, 2)
    lines = ["{ .reg .pred odd;", f"setp.nan.f32 odd, {sums[0]}, {sums[1]};"]
    lines += [f"@odd prefetch.global.L2 [{at[0]}];"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


def _rescale(count: int) -> str:
    """PTX: multiply a thread's sums by the factor of their row, if it is not 1.

    Of every four sums the first two belong to one row and the others to another. Operands: sums (results and
    inputs), and a factor for each.
    """
    sums, _, factors = registers(3, count)
    lines = ["{ .reg .pred some;", f"setp.ne.f32 some, {factors[0]}, 0f3F800000;"]
    lines += [f"setp.ne.or.f32 some, {factors[2]}, 0f3F800000, some;"]
    lines += ["vote.sync.any.pred some, some, 0xffffffff;", "@!some bra done;"]
    lines += [f"mul.f32 {x}, {x}, {factor};" for x, factor in zip(sums, factors, strict=True)]
    return "\n".join([*lines, "done: }"])


def _rescale_operands(count: int) -> str:
    return ",".join([*["=f"] * count, *(str(i) for i in range(count)), *["f"] * count])


def registers(count: int, each: int) -> list[list[str]]:
    """The PTX names of `count` operands of `each` registers."""
    return [[f"${each * number + i}" for i in range(each)] for number in range(count)]


def constraints(letters: tuple[str, ...], each: int) -> str:
    """The constraint string of operands of `each` registers."""
    return ",".join(letter for letter in letters for _ in range(each))


NAMED_BARRIER_OPERANDS = gl.constexpr("=r,r")
SELECT_EQUAL_OPERANDS = gl.constexpr("=r,f,f,r")
FIRST_BASE, FIRST_BASE_OPERANDS = gl.constexpr(_first_base()), gl.constexpr(constraints(("=&f", *"ff"), 2))
RESCALE, RESCALE_OPERANDS = gl.constexpr(_rescale(TILE // 2)), gl.constexpr(_rescale_operands(TILE // 2))
# By the number of parts of a tile that have maxima of their own.
OFFER_MAXIMA_1, OFFER_MAXIMA_1_OPERANDS = (
    gl.constexpr(_offer_maxima(1)),
    gl.constexpr(constraints(("=&f", "=&f", *"fr"), 2)),
)
OFFER_MAXIMA_2, OFFER_MAXIMA_2_OPERANDS = (
    gl.constexpr(_offer_maxima(2)),
    gl.constexpr(constraints(("=&f", *"fr"), 4)),
)
STORE_MAXIMA_1, STORE_MAXIMA_1_OPERANDS = (
    gl.constexpr(_store_maxima(1)),
    gl.constexpr(constraints(("=r", *"ffrl"), 2)),
)
STORE_MAXIMA_2, STORE_MAXIMA_2_OPERANDS = (
    gl.constexpr(_store_maxima(2)),
    gl.constexpr(constraints(("=r", *"frl"), 4)),
)
FLAG_NAN, FLAG_NAN_OPERANDS = gl.constexpr(_flag_nan()), gl.constexpr(constraints(("=r", *"fffl"), 2))
FORCE_NOW, FORCE_NOW_OPERANDS = gl.constexpr(_force_now()), gl.constexpr(constraints(("=r", *"fl"), 2))
EXCHANGE, EXCHANGE_OPERANDS = gl.constexpr(_exchange()), gl.constexpr(constraints(("=&f", "=&f", *"ffr"), 2))
RECEIVE, RECEIVE_OPERANDS = gl.constexpr(_receive()), gl.constexpr(constraints(("=r", *"ffrrrl"), 2))
LOGARITHM, LOGARITHM_OPERANDS = gl.constexpr("lg2.approx.ftz.f32 $0, $1;"), gl.constexpr("=f,f")
