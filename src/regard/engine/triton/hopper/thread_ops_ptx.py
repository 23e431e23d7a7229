"""PTX texts of thread_ops.py, and the constraints of their operands."""

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
    "RESCALE_TILE",
    "RESCALE_TILE_OPERANDS",
    "RESCALE_TILE_RESULTS",
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

# What weights of a row are relative to as long as it has seen nothing.
LOWEST = gl.constexpr(-1e36)
# How far weights may go beyond 1, as a power of two, before what they are relative to is raised.
SLACK = 8.0
# How far that may be raised when weights were made already, as a power of two: further down there is only 0.
MOST = 126.0
# Weights that a thread has of a tile.
TILE = 64


def _handed_out(one: list[str], other: list[str], thread: str, results: list[str]) -> str:
    """PTX: hand out numbers of which four neighbouring threads know a part each.

    A thread has two of `one` and two of `other`, and one of these four is its own: by the lowest bit of its
    number from one or other, by the next the first or second. It keeps its part of that and gives three away,
    one to each neighbour. What it is given comes through shared memory, and late where products keep that
    busy: the four results are put whole_output one step later, or where there is nothing else to do.
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
    """PTX: hand out what keys received.

    Operands: results (two, two), two sums of the first block and two of the second, the thread.
    """
    kept, given, one, other, thread = registers(5, 2)
    return _handed_out(one, other, thread[0], [*kept, *given])


def _receive() -> str:
    """PTX: add up and store what `_exchange` handed out.

    Operands: results (none), the part that was kept and what was given, the thread, the place of its key,
    which blocks there are (bits), and where the blocks are.
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
    """PTX: let each thread of a row have the largest score of one part of a tile.

    The tile has one part or two, a thread two rows of each.
    Operands: results (four: what the thread and its neighbours know of its own), the scores, the thread.
    """
    *results, scores, thread = registers(2 // parts + 2, 2 * parts)
    one, other = scores[::2] * (2 // parts), scores[1::2] * (2 // parts)
    return _handed_out(one, other, thread[0], [to for some in results for to in some])


def _store_maxima(parts: int) -> str:
    """PTX: put whole_output and store what `_offer_maxima` handed out.

    Operands: results (none), the four, the place of the thread's own, negative where there is none, and where
    places are.
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
    """PTX: arrive at one of the hardware's barriers ("arrive"), or wait there for all others ("sync").

    These are so many warpgroups that compute, and the warp that loads. Operands: result (none), the barrier.
    """
    return f"bar.{how} $1, {warpgroups * 128 + 32}; mov.b32 $0, 0;"


@gluon.constexpr_function
def select_equal_ptx(this: int) -> str:
    """PTX: a number where one is equal to another. Operands: result, these two, the number for elsewhere."""
    return f"{{ .reg .pred equal; setp.eq.f32 equal, $1, $2; selp.b32 $0, {this}, $3, equal; }}"


def _first_base() -> str:
    """PTX: the score that weights of a row are relative to, for rows that have none: the largest one that its
    four threads have, if they see any. Two rows a thread.

    Operands: results, the thread's largest scores, what weights have been relative to.
    """
    results, mine, before = registers(3, 2)
    lines = ["{ .reg .pred none<2>, some; .reg .f32 other;"]
    for i in range(2):
        lines += [f"mov.f32 {results[i]}, {before[i]}; setp.le.f32 none{i}, {before[i]}, {LOWEST.value};"]
    lines += ["or.pred some, none0, none1; vote.sync.any.pred some, some, 0xffffffff; @!some bra force_now;"]
    for i in range(2):
        lines += [f"selp.f32 {results[i]}, {mine[i]}, {before[i]}, none{i};"]
        for lane in (1, 2):
            lines += [f"shfl.sync.bfly.b32 other, {results[i]}, {lane}, 31, 0xffffffff;"]
            lines += [f"max.f32 {results[i]}, {results[i]}, other;"]
        lines += [f"max.f32 {results[i]}, {results[i]}, {before[i]};"]
    return "\n".join([*lines, "force_now: }"])


def _rescale_tile(asked: tuple[bool, bool], whole_output: bool, logs: bool) -> str:
    """PTX: where a tile has a score far above what weights of a row are relative to, raise that, and scale
    down the tile's weights, which are made already, what was summed so far, and the output if it is given.

    Weights may be as large as 2^SLACK: only beyond that do the four threads of a row look for their largest.
    All of it is one branch that is rarely taken, since the way around one takes as long as it takes
    instructions to come from there. A base is raised by MOST at the most, as a power of two, and beyond that
    it is no number.

    Operands: results (weights, the output or what is left of its weights, bases, sums of weights and those
    that are `asked`), the first or the first two of them as they are, the thread's largest weights, or their
    `logs`, and bases and sums as they are. All have as many registers as a thread has weights. Of every four
    the first two are of one row, the others of another; what rows have one of is where their first weight is.
    """
    more, rows = sum(asked), (0, 2)
    operands = registers(8 + whole_output + 2 * more, TILE)
    weights, second, *sums = operands[: 4 + more]
    mine, *before = operands[5 + whole_output + more :]
    lines = ["{ .reg .pred far<2>, some; .reg .f32 left<2>, top, other;"]
    lines += [f"mov.f32 {to[row]}, {x[row]};" for to, x in zip(sums, before, strict=True) for row in rows]
    lines += [] if whole_output else [f"mov.f32 {second[row]}, 0f3F800000;" for row in rows]
    for i, row in enumerate(rows):
        lines += [f"setp.gt.f32 far{i}, {mine[row]}, {SLACK if logs else 2.0**SLACK};"]
    lines += ["or.pred some, far0, far1; vote.sync.any.pred some, some, 0xffffffff; @!some bra force_now;"]
    for i, row in enumerate(rows):
        base, total, *others = (x[row] for x in before)
        to_base, to_total, *to_others = (to[row] for to in sums)
        lines += [f"mov.f32 top, {mine[row]};"]
        for lane in (1, 2):
            lines += [f"shfl.sync.bfly.b32 other, top, {lane}, 31, 0xffffffff; max.f32 top, top, other;"]
        lines += [] if logs else ["lg2.approx.ftz.f32 top, top;"]
        lines += [f"setp.gt.f32 far{i}, top, {SLACK};"]
        lines += [f"setp.gt.f32 some, top, {MOST}; selp.f32 top, 0f7FC00000, top, some;"]
        lines += [f"selp.f32 top, top, 0f00000000, far{i}; add.f32 {to_base}, {base}, top; neg.f32 top, top;"]
        lines += [f"ex2.approx.ftz.f32 left{i}, top; mul.f32 {to_total}, {total}, left{i};"]
        if asked[0]:
            lines += [f"fma.rn.f32 {to_others[0]}, top, {total}, {others[0]};"]
            others[0] = to_others[0]
        lines += [f"mul.f32 {to}, {x}, left{i};" for to, x in zip(to_others, others, strict=True)]
        lines += [] if whole_output else [f"mov.f32 {second[row]}, left{i};"]
    for x in (weights, second) if whole_output else (weights,):
        lines += [f"mul.f32 {x[i]}, {x[i]}, left{i // 2 % 2};" for i in range(TILE)]
    return "\n".join([*lines, "force_now: }"])


def _rescale_tile_operands(asked: tuple[bool, bool], whole_output: bool) -> str:
    more, kept = sum(asked), 1 + whole_output
    results = ["=f"] * (kept * TILE) + ["=&f"] * ((4 + more - kept) * TILE)
    return ",".join([*results, *(str(i) for i in range(kept * TILE)), *["f"] * ((3 + more) * TILE)])


def _flag_nan() -> str:
    """PTX: note sums that are no numbers.

    The assembler moves what has no effect behind whatever waits; this has one, and what it looks at is
    force_now
    before it. Nothing is moved past a place where the threads of a warp named_barrier. They are
    whole_output here, so that
    this place is all that is left of it.

    Operands: results (none), three sums of two rows each, and where to note.
    """
    results, *sums, dirty = registers(5, 2)
    lines = ["{ .reg .pred bad; .reg .b32 one;", f"setp.nan.f32 bad, {sums[0][0]}, {sums[0][1]};"]
    lines += [f"setp.nan.or.f32 bad, {one}, {other}, bad;" for one, other in sums[1:]]
    lines += [f"mov.b32 one, 1; @bad st.global.b32 [{dirty[0]}], one; bar.warp.sync 0xffffffff;"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


def _force_now() -> str:
    """PTX: see to it that two sums are force_now here, and not behind whatever waits next.

    The assembler moves what has no effect: this has none on any result, a prefetch where there is no number.
    Operands: results (none), the sums, an address.
    """
    results, sums, at = registers(3, 2)
    lines = ["{ .reg .pred odd;", f"setp.nan.f32 odd, {sums[0]}, {sums[1]};"]
    lines += [f"@odd prefetch.global.L2 [{at[0]}];"]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results), "}"])


def _rescale(count: int) -> str:
    """PTX: multiply a thread's sums by what is left of their weights, where that is not all of them.

    Of every four sums the first two are of one row, the others of another. Operands: sums, which are results
    too, and a factor for each.
    """
    sums, _, factors = registers(3, count)
    lines = ["{ .reg .pred some;", f"setp.ne.f32 some, {factors[0]}, 0f3F800000;"]
    lines += [f"setp.ne.or.f32 some, {factors[2]}, 0f3F800000, some;"]
    lines += ["vote.sync.any.pred some, some, 0xffffffff;", "@!some bra force_now;"]
    lines += [f"mul.f32 {x}, {x}, {factor};" for x, factor in zip(sums, factors, strict=True)]
    return "\n".join([*lines, "force_now: }"])


def _rescale_operands(count: int) -> str:
    return ",".join([*["=f"] * count, *(str(i) for i in range(count)), *["f"] * count])


def registers(count: int, each: int) -> list[list[str]]:
    """PTX's names of `count` operands of so many registers each."""
    return [[f"${each * number + i}" for i in range(each)] for number in range(count)]


def constraints(letters: tuple[str, ...], each: int) -> str:
    """PTX's constraints of operands of so many registers each."""
    return ",".join(letter for letter in letters for _ in range(each))


NAMED_BARRIER_OPERANDS = gl.constexpr("=r,r")
SELECT_EQUAL_OPERANDS = gl.constexpr("=r,f,f,r")
FIRST_BASE, FIRST_BASE_OPERANDS = gl.constexpr(_first_base()), gl.constexpr(constraints(("=&f", *"ff"), 2))
# By whether sums for entropies and distances are asked, and whether the output is scaled down along.
_WAYS = [((energy, far), both) for energy in (False, True) for far in (False, True) for both in (False, True)]
RESCALE_TILE = gl.constexpr(
    {
        (*asked, both, logs): _rescale_tile(asked, both, logs)
        for asked, both in _WAYS
        for logs in (False, True)
    }
)
RESCALE_TILE_OPERANDS = gl.constexpr(
    {(*asked, both): _rescale_tile_operands(asked, both) for asked, both in _WAYS}
)
# By how many of the two sums are asked.
RESCALE_TILE_RESULTS = gl.constexpr({sums: (gl.float32,) * (4 + sums) for sums in range(3)})
RESCALE, RESCALE_OPERANDS = gl.constexpr(_rescale(TILE // 2)), gl.constexpr(_rescale_operands(TILE // 2))
# By how many parts of a tile have largest scores of their own.
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
