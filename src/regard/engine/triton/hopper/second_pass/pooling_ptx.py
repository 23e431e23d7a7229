"""PTX for the overview of the second pass (pooling.py): combines the threads' parts of each pooled block in
one thread.

A thread holds two rows of its warp's sixteen, eight apart, and of every eight columns two neighbouring ones.
What it holds of a pooled block is reduced before anything is exchanged. Then two threads with parts of the
same blocks halve these blocks between them: each gives away its parts of the other's half. This repeats over
one bit of the lane number after the other, until every block has one owner. If there are more threads than
pooled blocks, the two 64 × 64 blocks of a step are divided as well.
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
# The most numbers that a thread carries from one block of cells to the next.
FEW = 4
# Sizes of pooled blocks that are computed here: queries, keys. Larger ones are combined from these
# afterwards.
SIZES = ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 16), (64, 16))
ADD, MAX = "add.f32", "max.u32"

# The distance of two pooled blocks: rows (queries), columns (keys).
Step = tuple[int, int]
# The registers of an operand: one per pooled block of which a thread holds a part.
Names = list[str]


@dataclass(frozen=True)
class Share:
    """Which pooled blocks a thread holds parts of, and which thread owns each of them in the end.

    `values` are the distances that the bits of a register's number stand for, lowest first. `shared` are the
    bits of the lane number over which parts must be combined. `owned` are the distances that bits of the lane
    number stand for in the end, because of the thread's cells or by the halving. `chosen` are the bits that
    decide about those of `values`, and `block` is the bit that decides between the two blocks of a step, or
    0.
    """

    values: tuple[Step, ...]
    shared: tuple[int, ...]
    owned: dict[int, Step]
    chosen: tuple[int, ...]
    block: int

    @property
    def count(self) -> int:
        """The number of pooled blocks of which a thread holds a part."""
        return 1 << len(self.values)

    @property
    def wide(self) -> bool:
        """Whether one block of cells has a pooled block for every thread."""
        return len(self.shared) <= len(self.values)

    @property
    def idle(self) -> tuple[int, ...]:
        """The bits over which nothing is left to halve: a thread with such a bit set owns no block."""
        return tuple(bit for bit in self.shared if bit not in self.owned)


def _share_of(pool_q: int, pool_k: int) -> Share:
    """The share of a thread for pooled blocks of this size."""
    lanes = {lane: (0, lane // 4 // pool_k) for lane in LANES[:3]}
    lanes |= {lane: (2 * lane // pool_q, 0) for lane in LANES[3:]}
    # Registers: two columns, two rows, then the columns 8, 16 and 32 further on.
    registers = ((1 // pool_q, 0), (0, 8 // pool_k), *((8 * far // pool_q, 0) for far in (1, 2, 4)))
    values = tuple(step for step in registers if any(step))
    shared = tuple(lane for lane in LANES if not any(lanes[lane]))
    traded, block = [*values[::-1]], 0
    if len(shared) > len(values):
        # The two blocks of a step are divided too: after four pooled blocks were dealt, or along with two.
        at = len(values) if 1 << len(values) >= FEW else 0
        traded.insert(at, (0, SIDE // pool_k))
        block = shared[at]
    takers = dict(zip(shared, traded, strict=False))
    owned = {lane: step for lane, step in lanes.items() if any(step)} | takers
    chosen = tuple(lane for lane in takers if lane != block)[::-1]
    return Share(values, shared, owned, chosen, block)


class _Text:
    """Writes PTX: numbers in registers, of which threads give parts to others."""

    def __init__(self, op: str) -> None:
        self.op, self.names = op, 0
        self.lines: list[str] = []

    def new(self, kind: str = "b32", many: int = 1) -> list[str]:
        names = [f"x{self.names + i}" for i in range(many)]
        self.names += many
        self.lines += [f".reg .{kind} {', '.join(names)};"]
        return names

    def upper(self, lane: str, bit: int) -> str:
        """Emit a test whether a bit of the lane number is set."""
        [where], [is_set] = self.new(), self.new("pred")
        self.lines += [f"and.b32 {where}, {lane}, {bit}; setp.ne.u32 {is_set}, {where}, 0;"]
        return is_set

    def chosen(self, one: str, other: str, if_set: str) -> str:
        [to] = self.new()
        self.lines += [f"selp.b32 {to}, {other}, {one}, {if_set};"]
        return to

    def from_neighbour(self, x: str, bits: int) -> str:
        [to] = self.new()
        self.lines += [f"shfl.sync.bfly.b32 {to}, {x}, {bits}, 31, 0xffffffff;"]
        return to

    def joined(self, one: list[str], other: list[str]) -> list[str]:
        both = self.new(many=len(one))
        self.lines += [f"{self.op} {z}, {x}, {y};" for x, y, z in zip(one, other, both, strict=True)]
        return both

    def together(self, numbers: list[str]) -> str:
        """Combine all parts of one number."""
        while len(numbers) > 1:
            half = len(numbers) // 2
            numbers = self.joined(numbers[:half], numbers[half:])
        return numbers[0]

    def halved(self, numbers: list[str], lane: str, bit: int) -> tuple[list[str], list[str]]:
        """The half that a thread keeps, and its neighbour's parts of that half."""
        half = len(numbers) // 2
        second = self.upper(lane, bit)
        pairs = [*zip(numbers[:half], numbers[half:], strict=True)]
        kept = [self.chosen(one, other, second) for one, other in pairs]
        given = [self.from_neighbour(self.chosen(other, one, second), bit) for one, other in pairs]
        return kept, given

    def picked(self, numbers: list[str], lane: str, bits: tuple[int, ...]) -> str:
        """The largest values in a warp, each to its owner, chosen by `bits` of the lane, lowest first."""
        if not bits:
            [to] = self.new()
            self.lines += [f"redux.sync.max.u32 {to}, {numbers[0]}, 0xffffffff;"]
            return to
        half = len(numbers) // 2
        one, other = (self.picked(part, lane, bits[:-1]) for part in (numbers[:half], numbers[half:]))
        return self.chosen(one, other, self.upper(lane, bits[-1]))

    def dealt(self, numbers: list[str], lane: str, far: int, near: int) -> list[str]:
        """Of four numbers of which four threads hold parts, all parts of the thread's own number.

        This takes as many exchanges as halving twice, and none waits for another.
        """
        second, later = self.upper(lane, near), self.upper(lane, far)
        a, b, c, d = numbers
        # The lower bit selects one of two, the upper bit the first or the last two.
        one, two = self.chosen(a, b, second), self.chosen(c, d, second)
        three, four = self.chosen(b, a, second), self.chosen(d, c, second)
        own = self.chosen(one, two, later)
        given = [(self.chosen(three, four, later), near), (self.chosen(two, one, later), far)]
        given += [(self.chosen(four, three, later), near | far)]
        return [own, *(self.from_neighbour(x, where) for x, where in given)]

    def stored(self, x: str, owner: str, place: str, there: str, to: str) -> None:
        """Store a number if this thread owns a block and that block exists."""
        [is_own], [own], [at] = self.new(), self.new("pred"), self.new("u64")
        self.lines += [f"and.b32 {is_own}, {owner}, {there}; setp.ne.u32 {own}, {is_own}, 0;"]
        self.lines += [f"mad.wide.s32 {at}, {place}, 4, {to}; @{own} st.global.b32 [{at}], {x};"]

    def put(self, numbers: list[str], results: list[str]) -> None:
        """Set the results to these numbers, and the remaining ones to 0."""
        for i, to in enumerate(results):
            self.lines += [f"mov.b32 {to}, {numbers[i] if i < len(numbers) else '0'};"]

    def written(self) -> str:
        return "\n".join(["{", *self.lines, "}"])


def _spread(text: _Text, share: Share, results: Names, numbers: Names, lane: Names) -> None:
    """Halve the parts of blocks until few are left, or only those that a thread keeps.

    In the last case the parts received are not combined yet.
    """
    for i, bit in enumerate(share.shared):
        if not share.wide and len(numbers) <= FEW:
            break
        kept, given = text.halved(numbers, lane[0], bit)
        last = share.wide and i == len(share.shared) - 1
        numbers = [*kept, *given] if last else text.joined(kept, given)
    text.put(numbers, results)


def _store(text: _Text, share: Share, results: Names, numbers: Names, *where: Names) -> None:
    """Combine what `_spread` left, and store it: the first block at `place`, rows `across` apart."""
    place, inside, across, to = (name[0] for name in where)
    steps = share.values[: len(share.values) - len(share.shared)]
    if share.shared:
        half = 1 << len(steps)
        numbers = text.joined(numbers[:half], numbers[half : 2 * half])
    [there], [at] = text.new("pred"), text.new("u64")
    text.lines += [f"setp.ne.u32 {there}, {inside}, 0; mad.wide.s32 {at}, {place}, 4, {to};"]
    places = [(0, 0)]
    for q, k in steps:
        places += [(q + further, k + on) for further, on in places]
    row = 0
    for (q, k), x in sorted(zip(places, numbers, strict=False)):
        if q != row:
            # Advance from row to row: otherwise the assembler would keep the distance of every row from the
            # first in registers.
            text.lines += [f"mad.wide.s32 {at}, {across}, {4 * (q - row)}, {at};"]
            row = q
        text.lines += [f"@{there} st.global.b32 [{at}+{4 * k}], {x};"]
    text.put([], results)


def _deal(text: _Text, share: Share, one: Names, other: Names, a: Names, b: Names, lane: Names) -> None:
    """Deal four sums to four threads: those of one block of cells, or of both blocks if each has two."""
    far, near = share.shared[max(0, len(share.values) - 2) :][:2]
    text.put(text.dealt([*a, *b][:FEW], lane[0], far, near), [*one, *other])


def _gather(text: _Text, _: Share, results: Names, a: Names, b: Names) -> None:
    """Combine what was dealt."""
    text.put([text.together([*a, *b][:FEW])], results)


def _swap(
    text: _Text, share: Share, kept: Names, given: Names, a: Names, b: Names, first: Names, lane: Names
) -> None:
    """Combine what was dealt of the second block of a step, and halve its sum and that of the first."""
    [x], [more] = text.halved([first[0], text.together([*a, *b][:FEW])], lane[0], share.block)
    text.put([x], kept)
    text.put([more], given)


def _ask(text: _Text, share: Share, kept: Names, given: Names, a: Names, b: Names, *, left: int) -> None:
    """Combine parts of a thread's sum, and request the next from a neighbour; `left` requests remain.

    Before the first request there may be four parts, as `_deal` left them; otherwise there are two.
    """
    dealt = share.count < FEW and left == len(share.idle)
    x = text.together([*a, *b][:FEW] if dealt else [a[0], b[0]])
    text.put([x], kept)
    text.put([text.from_neighbour(x, share.idle[-left])], given)


def _land(text: _Text, _: Share, results: Names, a: Names, b: Names, *where: Names) -> None:
    """Combine the last two parts of a thread's sum, and store it."""
    text.stored(text.together([a[0], b[0]]), *(name[0] for name in where))
    text.put([], results)


def _pick(
    text: _Text, share: Share, results: Names, numbers: Names, before: Names, lane: Names, *, second: bool
) -> None:
    """The largest values that the threads of a warp hold of each block, each to the thread that owns the
    block.

    For the second block of a step only in the threads that own a part of it; others keep what they had
    `before`.
    """
    own = text.picked(numbers, lane[0], share.chosen)
    if second:
        own = text.chosen(before[0], own, text.upper(lane[0], share.block))
    text.put([own], results)


def _keep(text: _Text, _: Share, results: Names, top: Names, *where: Names) -> None:
    """Store the largest weight of a thread's block."""
    text.stored(top[0], *(name[0] for name in where))
    text.put([], results)


def _written(write: Callable[..., None], op: str, operands: str, share: Share) -> str:
    """A piece of PTX, with operands named as PTX wants them."""
    text, count = _Text(op), share.count
    write(text, share, *([f"${count * n + i}" for i in range(count)] for n in range(len(operands))))
    return text.written()


_SHARES = {size: _share_of(*size) for size in SIZES}
_WIDE, _NARROW = ([size for size in SIZES if _SHARES[size].wide is wide] for wide in (True, False))
# Sums of blocks of 64 queries are computed from the column sums.
_SUMMED = [size for size in _NARROW if size[0] < SIDE]
_MANY = [size for size in SIZES if _SHARES[size].count > FEW]
# Sizes that are dealt block by block; of the others both blocks of a step are dealt at once.
_SINGLE = [size for size in _SUMMED if _SHARES[size].count >= FEW]
# By name: the writer, its operation, the types of its operands (results in capitals), and the sizes it is
# for.
_WRITERS = {
    "spread sums": (_spread, ADD, "Ffr", _MANY),
    "spread maxima": (_spread, MAX, "Rrr", _WIDE),
    "store sums": (_store, ADD, "Ffrrrl", _WIDE),
    "store maxima": (_store, MAX, "Rrrrrl", _WIDE),
    "deal": (_deal, ADD, "FFffr", _SUMMED),
    "gather": (_gather, ADD, "Fff", _SINGLE),
    "swap": (_swap, ADD, "FFfffr", _SINGLE),
    "land": (_land, ADD, "Fffrrrl", _SUMMED),
    "pick": (partial(_pick, second=False), MAX, "Rrrr", _NARROW),
    "pick second": (partial(_pick, second=True), MAX, "Rrrr", _NARROW),
    "keep": (_keep, MAX, "Rrrrrl", _NARROW),
} | {
    f"ask {left}": (
        partial(_ask, left=left), ADD, "FFff", [size for size in _SUMMED if len(_SHARES[size].idle) >= left]
    )
    for left in (1, 2, 3)
}  # fmt: skip
# By name, and by the size of blocks.
OPERANDS = gl.constexpr({name: operands for name, (_, _, operands, _) in _WRITERS.items()})
TEXTS = gl.constexpr(
    {
        (name, *size): _written(write, op, operands, _SHARES[size])
        for name, (write, op, operands, sizes) in _WRITERS.items()
        for size in sizes
    }
)
# By size: the parts that a thread holds, the distances of the lane bits (lowest first), the bits that are
# clear in every owner, and the bit that decides between the two blocks of a step.
COUNT = gl.constexpr({size: share.count for size, share in _SHARES.items()})
STEPS = gl.constexpr(
    {size: tuple(share.owned.get(1 << bit, (0, 0)) for bit in range(5)) for size, share in _SHARES.items()}
)
IDLE = gl.constexpr({size: sum(share.idle) for size, share in _SHARES.items()})
BLOCK = gl.constexpr({size: share.block for size, share in _SHARES.items()})
