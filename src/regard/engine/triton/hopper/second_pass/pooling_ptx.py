"""PTX for the overview of the second pass (pooling.py): what threads know of blocks, given to one of them.

A thread has two rows of its warp's sixteen, eight unstack, and of every eight columns two neighbouring
ones. What it has of a block of the overview is reduced before anything is exchanged. Then two threads that
know parts of the same blocks halve these between them, each gives away what it knows of the other's, and so
on over one bit of their numbers after the other, until every block has one owner. Where there are more
threads than blocks of the overview, the two blocks of 64 × 64 cells of a step are halved as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from triton.experimental.gluon import language as gl

__all__ = ["BLOCK", "COUNT", "IDLE", "OPERANDS", "STEPS", "TEXTS"]

SIDE = 64
# Bits of a thread's number: rows 1, 2 and 4 of its warp's, columns 2 and 4.
LANES = (4, 8, 16, 1, 2)
# So many numbers a thread may carry from one block of cells to the next.
FEW = 4
# Blocks of the overview that are made here: queries, keys. Larger ones are put together from these.
SIZES = ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 16), (64, 16))
ADD, MAX = "add.f32", "max.u32"

# How far apart two blocks of the overview are: rows (queries), columns (keys).
Step = tuple[int, int]
# The registers of an operand: as many as there are blocks that a thread has a part of.
Names = list[str]


@dataclass(frozen=True)
class Share:
    """Which blocks of the overview a thread has parts of, and who has the whole ones in the end.

    `values` are the steps that bits of a register's number make, lowest first; `shared` the bits of a
    thread's number over which parts are to be put together. `owned` are the steps that bits of a thread's
    number make in the end, those that make one: by its cells, or by what it was left with. `chosen` are the
    bits that decide about those of `values`, and `block` the one that decides between the two blocks of a
    step, or 0.
    """

    values: tuple[Step, ...]
    shared: tuple[int, ...]
    owned: dict[int, Step]
    chosen: tuple[int, ...]
    block: int

    @property
    def count(self) -> int:
        """How many blocks a thread has a part of."""
        return 1 << len(self.values)

    @property
    def wide(self) -> bool:
        """Whether there is a block for every thread, of one block of cells."""
        return len(self.shared) <= len(self.values)

    @property
    def idle(self) -> tuple[int, ...]:
        """The bits over which there is nothing left to halve: a thread where one is set has no block."""
        return tuple(bit for bit in self.shared if bit not in self.owned)


def _share_of(pool_q: int, pool_k: int) -> Share:
    """The share of a thread in blocks of so many queries and keys."""
    lanes = {lane: (0, lane // 4 // pool_k) for lane in LANES[:3]}
    lanes |= {lane: (2 * lane // pool_q, 0) for lane in LANES[3:]}
    # Registers: two columns, two rows, and eight times so, eight columns on.
    registers = ((1 // pool_q, 0), (0, 8 // pool_k), *((8 * far // pool_q, 0) for far in (1, 2, 4)))
    values = tuple(step for step in registers if any(step))
    shared = tuple(lane for lane in LANES if not any(lanes[lane]))
    traded, block = [*values[::-1]], 0
    if len(shared) > len(values):
        # With the two blocks of a step: after four blocks of the overview were dealt, or along with two.
        at = len(values) if 1 << len(values) >= FEW else 0
        traded.insert(at, (0, SIDE // pool_k))
        block = shared[at]
    takers = dict(zip(shared, traded, strict=False))
    owned = {lane: step for lane, step in lanes.items() if any(step)} | takers
    chosen = tuple(lane for lane in takers if lane != block)[::-1]
    return Share(values, shared, owned, chosen, block)


class _Text:
    """PTX that is being written: numbers in registers, of which threads give parts away."""

    def __init__(self, op: str) -> None:
        self.op, self.names = op, 0
        self.lines: list[str] = []

    def new(self, kind: str = "b32", many: int = 1) -> list[str]:
        names = [f"x{self.names + i}" for i in range(many)]
        self.names += many
        self.lines += [f".reg .{kind} {', '.join(names)};"]
        return names

    def upper(self, lane: str, bit: int) -> str:
        """Whether a bit of the thread's number is set."""
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
        """Parts of one number put together."""
        while len(numbers) > 1:
            half = len(numbers) // 2
            numbers = self.joined(numbers[:half], numbers[half:])
        return numbers[0]

    def halved(self, numbers: list[str], lane: str, bit: int) -> tuple[list[str], list[str]]:
        """The half that a thread keeps, and what its neighbour knows of that."""
        half = len(numbers) // 2
        second = self.upper(lane, bit)
        pairs = [*zip(numbers[:half], numbers[half:], strict=True)]
        kept = [self.chosen(one, other, second) for one, other in pairs]
        given = [self.from_neighbour(self.chosen(other, one, second), bit) for one, other in pairs]
        return kept, given

    def picked(self, numbers: list[str], lane: str, bits: tuple[int, ...]) -> str:
        """The largest in a warp of what is a thread's own, by bits of its number, lowest first."""
        if not bits:
            [to] = self.new()
            self.lines += [f"redux.sync.max.u32 {to}, {numbers[0]}, 0xffffffff;"]
            return to
        half = len(numbers) // 2
        one, other = (self.picked(part, lane, bits[:-1]) for part in (numbers[:half], numbers[half:]))
        return self.chosen(one, other, self.upper(lane, bits[-1]))

    def dealt(self, numbers: list[str], lane: str, far: int, near: int) -> list[str]:
        """Of four numbers that four threads know parts of, all parts of the thread's own.

        As many exchanges as in two steps, and no wait in between.
        """
        second, later = self.upper(lane, near), self.upper(lane, far)
        a, b, c, d = numbers
        # By the lower bit one of two, by the upper the first two or the last.
        one, two = self.chosen(a, b, second), self.chosen(c, d, second)
        three, four = self.chosen(b, a, second), self.chosen(d, c, second)
        own = self.chosen(one, two, later)
        given = [(self.chosen(three, four, later), near), (self.chosen(two, one, later), far)]
        given += [(self.chosen(four, three, later), near | far)]
        return [own, *(self.from_neighbour(x, where) for x, where in given)]

    def stored(self, x: str, owner: str, place: str, there: str, to: str) -> None:
        """Store a number where its thread owns a block, and that is one of those there are."""
        [is_own], [own], [at] = self.new(), self.new("pred"), self.new("u64")
        self.lines += [f"and.b32 {is_own}, {owner}, {there}; setp.ne.u32 {own}, {is_own}, 0;"]
        self.lines += [f"mad.wide.s32 {at}, {place}, 4, {to}; @{own} st.global.b32 [{at}], {x};"]

    def put(self, numbers: list[str], results: list[str]) -> None:
        """Results that are numbers, as far as there are any."""
        for i, to in enumerate(results):
            self.lines += [f"mov.b32 {to}, {numbers[i] if i < len(numbers) else '0'};"]

    def written(self) -> str:
        return "\n".join(["{", *self.lines, "}"])


def _spread(text: _Text, share: Share, results: Names, numbers: Names, lane: Names) -> None:
    """Halve parts of blocks until there are few, or those that a thread keeps.

    In the last case what is given is not put together yet.
    """
    for i, bit in enumerate(share.shared):
        if not share.wide and len(numbers) <= FEW:
            break
        kept, given = text.halved(numbers, lane[0], bit)
        last = share.wide and i == len(share.shared) - 1
        numbers = [*kept, *given] if last else text.joined(kept, given)
    text.put(numbers, results)


def _store(text: _Text, share: Share, results: Names, numbers: Names, *where: Names) -> None:
    """Put together what `_spread` left, and store it: the first block at `place`, and rows `across` apart."""
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
            # From one row to the next: the assembler would keep how far all of them are from the first.
            text.lines += [f"mad.wide.s32 {at}, {across}, {4 * (q - row)}, {at};"]
            row = q
        text.lines += [f"@{there} st.global.b32 [{at}+{4 * k}], {x};"]
    text.put([], results)


def _deal(text: _Text, share: Share, one: Names, other: Names, a: Names, b: Names, lane: Names) -> None:
    """Deal four sums among four threads: of one block of cells, or of both where these have two each."""
    far, near = share.shared[max(0, len(share.values) - 2) :][:2]
    text.put(text.dealt([*a, *b][:FEW], lane[0], far, near), [*one, *other])


def _gather(text: _Text, _: Share, results: Names, a: Names, b: Names) -> None:
    """Put together what was dealt."""
    text.put([text.together([*a, *b][:FEW])], results)


def _swap(
    text: _Text, share: Share, kept: Names, given: Names, a: Names, b: Names, first: Names, lane: Names
) -> None:
    """Put together what was dealt of the second block of a step, and halve its sum and that of the first."""
    [x], [more] = text.halved([first[0], text.together([*a, *b][:FEW])], lane[0], share.block)
    text.put([x], kept)
    text.put([more], given)


def _ask(text: _Text, share: Share, kept: Names, given: Names, a: Names, b: Names, *, left: int) -> None:
    """Put together parts of a thread's sum, and ask a neighbour for more: one of so many that are left.

    Before the first of them there may be four parts, as `_deal` has left them; then it is two.
    """
    dealt = share.count < FEW and left == len(share.idle)
    x = text.together([*a, *b][:FEW] if dealt else [a[0], b[0]])
    text.put([x], kept)
    text.put([text.from_neighbour(x, share.idle[-left])], given)


def _land(text: _Text, _: Share, results: Names, a: Names, b: Names, *where: Names) -> None:
    """Put together the last two parts of a thread's sum, and store it."""
    text.stored(text.together([a[0], b[0]]), *(name[0] for name in where))
    text.put([], results)


def _pick(
    text: _Text, share: Share, results: Names, numbers: Names, before: Names, lane: Names, *, second: bool
) -> None:
    """The largest of what the threads of a warp know of blocks, and of these a thread's own.

    Of the second block of a step only for those who own a part of that: others have theirs `before`.
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
    """A text, its operands having names as PTX does."""
    text, count = _Text(op), share.count
    write(text, share, *([f"${count * n + i}" for i in range(count)] for n in range(len(operands))))
    return text.written()


_SHARES = {size: _share_of(*size) for size in SIZES}
_WIDE, _NARROW = ([size for size in SIZES if _SHARES[size].wide is wide] for wide in (True, False))
# Sums of blocks of 64 queries come from what keys receive.
_SUMMED = [size for size in _NARROW if size[0] < SIDE]
_MANY = [size for size in SIZES if _SHARES[size].count > FEW]
# Those that are dealt block by block; of others both blocks of a step are dealt at once.
_SINGLE = [size for size in _SUMMED if _SHARES[size].count >= FEW]
# Who writes what, with which operation, what kinds of operands it has (results in capitals), for which sizes.
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
# By the size of blocks: how many a thread has parts of, the steps that the bits of its number make, lowest
# first, the bits that are not set in who owns a block, and the one that decides between the blocks of a step.
COUNT = gl.constexpr({size: share.count for size, share in _SHARES.items()})
STEPS = gl.constexpr(
    {size: tuple(share.owned.get(1 << bit, (0, 0)) for bit in range(5)) for size, share in _SHARES.items()}
)
IDLE = gl.constexpr({size: sum(share.idle) for size, share in _SHARES.items()})
BLOCK = gl.constexpr({size: share.block for size, share in _SHARES.items()})
