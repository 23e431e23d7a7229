"""PTX for pooled blocks of the second pass (pooling.py): a reduce-scatter within each warp.

A thread holds two rows of its warp's sixteen, eight apart, and two neighbouring columns of every eight. It
first reduces its own cells of each pooled block to one partial result. Then threads that hold partial results
of the same blocks exchange them in pairs: each thread of a pair sends the half of its partial results that
its partner will own. This repeats over the bits of the lane number until every pooled block has one owner. If
a warp has more threads than pooled blocks, the two 64 × 64 blocks of a step are divided in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from triton.experimental.gluon import language as gl

__all__ = ["BLOCK", "COUNT", "IDLE", "OPERANDS", "STEPS", "TEXTS"]

SIDE = 64
# Bits of the lane number: rows 1, 2 and 4 of its warp's, columns 2 and 4.
LANES = (4, 8, 16, 1, 2)
# The most partial results that a thread keeps in registers from one block of cells to the next.
FEW = 4
# Sizes of pooled blocks (queries, keys) that the kernel computes. Larger ones are combined from these later.
SIZES = ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 16), (64, 16))
ADD, MAX = "add.f32", "max.u32"

# The distance between two pooled blocks: rows (queries), columns (keys).
Step = tuple[int, int]
# The registers of an operand: one per pooled block of which a thread holds a part.
Names = list[str]


@dataclass(frozen=True)
class Share:
    """Which pooled blocks a thread holds partial results of, and which of them it owns after the exchange.

    values: for each bit of a register's number, lowest first, the distance between the pooled blocks of two
    registers that differ in that bit.
    shared: the bits of the lane number over which partial results must be combined.
    owned: for each bit of the lane number, the distance between the pooled blocks that two threads own which
    differ in that bit.
    chosen: the bits of the lane number that select one of `values`.
    block: the bit that selects one of the two blocks of a step; 0 if a thread owns pooled blocks of both.
    """

    values: tuple[Step, ...]
    shared: tuple[int, ...]
    owned: dict[int, Step]
    chosen: tuple[int, ...]
    block: int

    @property
    def count(self) -> int:
        """The number of pooled blocks of which a thread holds a partial result."""
        return 1 << len(self.values)

    @property
    def wide(self) -> bool:
        """Whether one block of cells has at least one pooled block per thread."""
        return len(self.shared) <= len(self.values)

    @property
    def idle(self) -> tuple[int, ...]:
        """The bits of the lane number that are 0 in every owner: there are fewer blocks than threads."""
        return tuple(bit for bit in self.shared if bit not in self.owned)


def _share_of(pool_q: int, pool_k: int) -> Share:
    """The share of a thread for pooled blocks of this size."""
    lanes = {lane: (0, lane // 4 // pool_k) for lane in LANES[:3]}
    lanes |= {lane: (2 * lane // pool_q, 0) for lane in LANES[3:]}
    # Registers: two columns, two rows, then the columns 8, 16 and 32 further on.
    registers = ((1 // pool_q, 0), (0, 8 // pool_k), *((8 * far // pool_q, 0) for far in (1, 2, 4)))
    values = tuple(step for step in registers if any(step))
    shared = tuple(lane for lane in LANES if not any(lanes[lane]))
    to_divide, block = [*values[::-1]], 0
    if len(shared) > len(values):
        # Divide the two blocks of a step too: after a scatter of four pooled blocks, or within one of two.
        at = len(values) if 1 << len(values) >= FEW else 0
        to_divide.insert(at, (0, SIDE // pool_k))
        block = shared[at]
    divided = dict(zip(shared, to_divide, strict=False))
    owned = {lane: step for lane, step in lanes.items() if any(step)} | divided
    chosen = tuple(lane for lane in divided if lane != block)[::-1]
    return Share(values, shared, owned, chosen, block)


class _PtxWriter:
    """Writes PTX that reduces and exchanges numbers between the threads of a warp; `op` combines two."""

    def __init__(self, op: str) -> None:
        self.op, self.names = op, 0
        self.lines: list[str] = []

    def new(self, kind: str = "b32", many: int = 1) -> list[str]:
        names = [f"x{self.names + i}" for i in range(many)]
        self.names += many
        self.lines += [f".reg .{kind} {', '.join(names)};"]
        return names

    def bit_is_set(self, lane: str, bit: int) -> str:
        """Test whether a bit of the lane number is set; returns the predicate."""
        [where], [is_set] = self.new(), self.new("pred")
        self.lines += [f"and.b32 {where}, {lane}, {bit}; setp.ne.u32 {is_set}, {where}, 0;"]
        return is_set

    def select(self, one: str, other: str, if_set: str) -> str:
        [to] = self.new()
        self.lines += [f"selp.b32 {to}, {other}, {one}, {if_set};"]
        return to

    def shuffle(self, x: str, bits: int) -> str:
        [to] = self.new()
        self.lines += [f"shfl.sync.bfly.b32 {to}, {x}, {bits}, 31, 0xffffffff;"]
        return to

    def combine(self, one: list[str], other: list[str]) -> list[str]:
        both = self.new(many=len(one))
        self.lines += [f"{self.op} {z}, {x}, {y};" for x, y, z in zip(one, other, both, strict=True)]
        return both

    def reduce(self, numbers: list[str]) -> str:
        """Combine all partial results of one number."""
        while len(numbers) > 1:
            half = len(numbers) // 2
            numbers = self.combine(numbers[:half], numbers[half:])
        return numbers[0]

    def halve(self, numbers: list[str], lane: str, bit: int) -> tuple[list[str], list[str]]:
        """The half of the numbers that a thread keeps, and its partner's partial results of that half."""
        half = len(numbers) // 2
        second = self.bit_is_set(lane, bit)
        pairs = [*zip(numbers[:half], numbers[half:], strict=True)]
        kept = [self.select(one, other, second) for one, other in pairs]
        given = [self.shuffle(self.select(other, one, second), bit) for one, other in pairs]
        return kept, given

    def warp_maxima(self, numbers: list[str], lane: str, bits: tuple[int, ...]) -> str:
        """The warp's maximum of each number; `bits` of the lane, lowest first, select a thread's number."""
        if not bits:
            [to] = self.new()
            self.lines += [f"redux.sync.max.u32 {to}, {numbers[0]}, 0xffffffff;"]
            return to
        half = len(numbers) // 2
        one, other = (self.warp_maxima(part, lane, bits[:-1]) for part in (numbers[:half], numbers[half:]))
        return self.select(one, other, self.bit_is_set(lane, bits[-1]))

    def scatter(self, numbers: list[str], lane: str, far: int, near: int) -> list[str]:
        """Four threads hold partial results of four numbers: each receives those of one number.

        This takes as many shuffles as halving twice, and no shuffle waits for another.
        """
        second, later = self.bit_is_set(lane, near), self.bit_is_set(lane, far)
        a, b, c, d = numbers
        # The lower bit selects one of two, the upper bit the first or the last two.
        one, two = self.select(a, b, second), self.select(c, d, second)
        three, four = self.select(b, a, second), self.select(d, c, second)
        own = self.select(one, two, later)
        given = [(self.select(three, four, later), near), (self.select(two, one, later), far)]
        given += [(self.select(four, three, later), near | far)]
        return [own, *(self.shuffle(x, where) for x, where in given)]

    def store_if_owned(self, x: str, owner: str, place: str, there: str, to: str) -> None:
        """Store a number if this thread owns a block and that block exists."""
        [is_own], [own], [at] = self.new(), self.new("pred"), self.new("u64")
        self.lines += [f"and.b32 {is_own}, {owner}, {there}; setp.ne.u32 {own}, {is_own}, 0;"]
        self.lines += [f"mad.wide.s32 {at}, {place}, 4, {to}; @{own} st.global.b32 [{at}], {x};"]

    def set_results(self, numbers: list[str], results: list[str]) -> None:
        """Set the results to these numbers, and the remaining ones to 0."""
        for i, to in enumerate(results):
            self.lines += [f"mov.b32 {to}, {numbers[i] if i < len(numbers) else '0'};"]

    def text(self) -> str:
        return "\n".join(["{", *self.lines, "}"])


def _halve(ptx: _PtxWriter, share: Share, results: Names, numbers: Names, lane: Names) -> None:
    """Halve the partial results until FEW are left; if every thread owns a block, until it has only its own.

    In that case the results of the last exchange are not combined yet.
    """
    for i, bit in enumerate(share.shared):
        if not share.wide and len(numbers) <= FEW:
            break
        kept, given = ptx.halve(numbers, lane[0], bit)
        last = share.wide and i == len(share.shared) - 1
        numbers = [*kept, *given] if last else ptx.combine(kept, given)
    ptx.set_results(numbers, results)


def _store(ptx: _PtxWriter, share: Share, results: Names, numbers: Names, *where: Names) -> None:
    """Combine the results of `_halve` and store them: the first block at `place`, rows `across` apart."""
    place, inside, across, to = (name[0] for name in where)
    steps = share.values[: len(share.values) - len(share.shared)]
    if share.shared:
        half = 1 << len(steps)
        numbers = ptx.combine(numbers[:half], numbers[half : 2 * half])
    [there], [at] = ptx.new("pred"), ptx.new("u64")
    ptx.lines += [f"setp.ne.u32 {there}, {inside}, 0; mad.wide.s32 {at}, {place}, 4, {to};"]
    places = [(0, 0)]
    for q, k in steps:
        places += [(q + further, k + on) for further, on in places]
    row = 0
    for (q, k), x in sorted(zip(places, numbers, strict=False)):
        if q != row:
            # Advance the address row by row: otherwise the assembler would keep every row's offset in a
            # register.
            ptx.lines += [f"mad.wide.s32 {at}, {across}, {4 * (q - row)}, {at};"]
            row = q
        ptx.lines += [f"@{there} st.global.b32 [{at}+{4 * k}], {x};"]
    ptx.set_results([], results)


def _scatter(
    ptx: _PtxWriter, share: Share, one: Names, other: Names, a: Names, b: Names, lane: Names
) -> None:
    """Scatter four sums to four threads: those of one block of cells, or of both blocks if each has two."""
    far, near = share.shared[max(0, len(share.values) - 2) :][:2]
    ptx.set_results(ptx.scatter([*a, *b][:FEW], lane[0], far, near), [*one, *other])


def _combine(ptx: _PtxWriter, _: Share, results: Names, a: Names, b: Names) -> None:
    """Combine the partial results that `_scatter` received."""
    ptx.set_results([ptx.reduce([*a, *b][:FEW])], results)


def _exchange(
    ptx: _PtxWriter, share: Share, kept: Names, given: Names, a: Names, b: Names, first: Names, lane: Names
) -> None:
    """Combine the scattered results of a step's second block; halve its sum and that of the first block."""
    [x], [more] = ptx.halve([first[0], ptx.reduce([*a, *b][:FEW])], lane[0], share.block)
    ptx.set_results([x], kept)
    ptx.set_results([more], given)


def _shuffle(
    ptx: _PtxWriter, share: Share, kept: Names, given: Names, a: Names, b: Names, *, left: int
) -> None:
    """Combine partial results of a thread's sum and shuffle the result; `left` shuffles remain.

    The first shuffle may follow a `_scatter`, which leaves four partial results; otherwise there are two.
    """
    scattered = share.count < FEW and left == len(share.idle)
    x = ptx.reduce([*a, *b][:FEW] if scattered else [a[0], b[0]])
    ptx.set_results([x], kept)
    ptx.set_results([ptx.shuffle(x, share.idle[-left])], given)


def _store_sum(ptx: _PtxWriter, _: Share, results: Names, a: Names, b: Names, *where: Names) -> None:
    """Combine the last two partial results of a thread's sum and store it."""
    ptx.store_if_owned(ptx.reduce([a[0], b[0]]), *(name[0] for name in where))
    ptx.set_results([], results)


def _warp_maximum(
    ptx: _PtxWriter, share: Share, results: Names, numbers: Names, before: Names, lane: Names, *, second: bool
) -> None:
    """The warp's maximum of each pooled block, in the thread that owns the block.

    With `second`, for the second block of a step: threads that own a block of the first keep its maximum,
    `before`.
    """
    own = ptx.warp_maxima(numbers, lane[0], share.chosen)
    if second:
        own = ptx.select(before[0], own, ptx.bit_is_set(lane[0], share.block))
    ptx.set_results([own], results)


def _store_maximum(ptx: _PtxWriter, _: Share, results: Names, top: Names, *where: Names) -> None:
    """Store the maximum of the block that a thread owns."""
    ptx.store_if_owned(top[0], *(name[0] for name in where))
    ptx.set_results([], results)


def _ptx_of(write: Callable[..., None], op: str, operands: str, share: Share) -> str:
    """The PTX of one writer, with numbered operands."""
    ptx, count = _PtxWriter(op), share.count
    write(ptx, share, *([f"${count * n + i}" for i in range(count)] for n in range(len(operands))))
    return ptx.text()


_SHARES = {size: _share_of(*size) for size in SIZES}
_WIDE, _NARROW = ([size for size in SIZES if _SHARES[size].wide is wide] for wide in (True, False))
# Sums of blocks of 64 queries are computed from the column sums.
_SUMMED = [size for size in _NARROW if size[0] < SIDE]
_MANY = [size for size in SIZES if _SHARES[size].count > FEW]
# Sizes whose sums are scattered block by block; the others scatter both blocks of a step at once.
_SINGLE = [size for size in _SUMMED if _SHARES[size].count >= FEW]
# By name: the writer, its operation, the types of its operands (results in capitals), and its block sizes.
_WRITERS = {
    "halve sums": (_halve, ADD, "Ffr", _MANY),
    "halve maxima": (_halve, MAX, "Rrr", _WIDE),
    "store sums": (_store, ADD, "Ffrrrl", _WIDE),
    "store maxima": (_store, MAX, "Rrrrrl", _WIDE),
    "scatter": (_scatter, ADD, "FFffr", _SUMMED),
    "combine": (_combine, ADD, "Fff", _SINGLE),
    "exchange": (_exchange, ADD, "FFfffr", _SINGLE),
    "store own sum": (_store_sum, ADD, "Fffrrrl", _SUMMED),
    "warp maximum": (partial(_warp_maximum, second=False), MAX, "Rrrr", _NARROW),
    "warp maximum second": (partial(_warp_maximum, second=True), MAX, "Rrrr", _NARROW),
    "store own maximum": (_store_maximum, MAX, "Rrrrrl", _NARROW),
} | {
    f"shuffle {left}": (
        partial(_shuffle, left=left), ADD, "FFff",
        [size for size in _SUMMED if len(_SHARES[size].idle) >= left],
    )
    for left in (1, 2, 3)
}  # fmt: skip
# By name, and by the size of blocks.
OPERANDS = gl.constexpr({name: operands for name, (_, _, operands, _) in _WRITERS.items()})
TEXTS = gl.constexpr(
    {
        (name, *size): _ptx_of(write, op, operands, _SHARES[size])
        for name, (write, op, operands, sizes) in _WRITERS.items()
        for size in sizes
    }
)
# Fields of `Share` by block size: `count`, `owned` for each bit of the lane, `idle` as a bit mask, and
# `block`.
COUNT = gl.constexpr({size: share.count for size, share in _SHARES.items()})
STEPS = gl.constexpr(
    {size: tuple(share.owned.get(1 << bit, (0, 0)) for bit in range(5)) for size, share in _SHARES.items()}
)
IDLE = gl.constexpr({size: sum(share.idle) for size, share in _SHARES.items()})
BLOCK = gl.constexpr({size: share.block for size, share in _SHARES.items()})
