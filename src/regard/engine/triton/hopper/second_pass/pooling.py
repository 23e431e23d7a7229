"""Pooled blocks of the second pass that are smaller than 64 × 64, and their maxima.

A thread first reduces the cells that it holds of a pooled block, then threads exchange partial results (the
PTX and the layouts are in pooling_ptx.py). If all threads of a warp hold parts of a block, the exchanges are
pipelined: each piece of PTX combines what the previous one requested some hundred cycles earlier, and results
are stored one step later. By block height:

    1, 2, 4   Few threads hold parts of a block: it is stored at once.
    8         A thread holds too many sums to exchange, so they are halved first. Maxima are stored at once:
              there are no registers to hold them until the next step.
    16        Four sums are dealt to four threads, both blocks of a step are halved, then two more shuffles.
    32        A block of cells has two sums: both blocks of a step are dealt at once, then three shuffles.
    64        Maxima only: sums follow from the column sums.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.second_pass.pooling_ptx import BLOCK, COUNT, IDLE, OPERANDS, STEPS, TEXTS
from regard.engine.triton.hopper.thread_columns import split_by_thread, sum_by_thread

__all__ = [
    "Overview",
    "finish",
    "fold_first",
    "fold_second",
    "go_on",
    "held_at_first",
    "resume",
    "sums_of",
    "valid_blocks",
]

SIDE = gl.constexpr(64)
# Bit of the lane number from which the bits say which block of a step the thread owns.
OWNED = gl.constexpr(8)
# Height of pooled blocks up to which they are stored at once, sums are halved first, and two blocks are dealt
# at once.
AT_ONCE, HALVED, JOINT = gl.constexpr(4), gl.constexpr(8), gl.constexpr(32)


class Overview(NamedTuple):
    """What an overview contains, the size of its blocks, where the overview of one head is stored, and how
    many blocks `across` it has."""

    SUMS: gl.constexpr
    MAXIMA: gl.constexpr
    POOL_Q: gl.constexpr
    POOL_K: gl.constexpr
    sums: gl.tensor
    maxima: gl.tensor
    across: gl.tensor
    k_blocks: gl.tensor


class Held(NamedTuple):
    """What a thread carries of the overview from one block to the next.

    `lane` and `place` say which pooled blocks it owns (`_seat_of`), `where` which of them is stored next
    (`_whereabouts`). `dealt` are parts of sums from the last deal, `parts` two parts of its own sum of the
    last step, `first` its sum of the first block of this step, and `top` its own largest weight.
    """

    lane: gl.tensor
    place: gl.tensor
    where: gl.tuple
    dealt: gl.tuple
    parts: gl.tuple
    first: gl.tensor
    top: gl.tensor


@gluon.jit
def held_at_first(zeros, overview):
    """The state before the first step."""
    x = _parts_of(zeros, overview, False)
    lane, place = _seat_of(x, overview)
    return Held(lane, place, (0, 0), (x, x), (x, x), x, x.to(gl.uint32, bitcast=True))


@gluon.jit
def resume(held, overview):
    """Before the first block's exponentials: combine what was dealt last, and request one part."""
    parts = held.parts
    if overview.SUMS and overview.POOL_Q == JOINT:
        parts = _run("ask 3", held.dealt, overview)
    elif overview.SUMS and overview.POOL_Q > AT_ONCE:
        parts = _run("swap", (held.dealt[0], held.dealt[1], held.first, held.lane), overview)
    return Held(held.lane, held.place, held.where, held.dealt, parts, held.first, held.top)


@gluon.jit
def fold_first(held, p, i, q_block, k_block, overview):
    """Fold the first block of a step."""
    dealt, parts, top = held.dealt, held.parts, held.top
    # What is stored late belongs to the previous step.
    where = _whereabouts(i - 1, q_block - 1, k_block - 1, overview)
    if overview.POOL_Q <= AT_ONCE:
        _store(p, held, q_block, k_block, overview)
    else:
        if overview.SUMS:
            if overview.POOL_Q == HALVED:
                _land(parts, held, where, overview)
            else:
                parts = _run("ask 2", parts, overview)
            if overview.POOL_Q < JOINT:
                dealt = _dealt(p, p, held, overview)
        if overview.MAXIMA:
            if overview.POOL_Q > HALVED:
                _keep(top, held, where, overview)
            top = _picked("pick", p, top, held, overview)
            if overview.POOL_Q == HALVED:
                where = _whereabouts(i, q_block, k_block, overview)
                _keep(top, held, (where[0] & (1 << OWNED), where[1]), overview)
    return Held(held.lane, held.place, where, dealt, parts, held.first, top)


@gluon.jit
def go_on(held, overview):
    """Before the second block's exponentials: combine what was dealt of the first block, and request another
    part."""
    first, parts = held.first, held.parts
    if overview.SUMS and overview.POOL_Q > AT_ONCE:
        if overview.POOL_Q < JOINT:
            first = _run("gather", held.dealt, overview)
        if overview.POOL_Q > HALVED:
            parts = _run("ask 1", parts, overview)
    return Held(held.lane, held.place, held.where, held.dealt, parts, first, held.top)


@gluon.jit
def fold_second(held, p, r, q_block, k_block, overview):
    """Fold the second block of a step; `p` is the first."""
    dealt, top = held.dealt, held.top
    if overview.POOL_Q <= AT_ONCE:
        _store(r, held, q_block, k_block + 1, overview)
    else:
        if overview.SUMS:
            if overview.POOL_Q > HALVED:
                _land(held.parts, held, held.where, overview)
            dealt = _dealt(p if overview.POOL_Q == JOINT else r, r, held, overview)
        if overview.MAXIMA:
            top = _picked("pick second" if overview.POOL_Q > HALVED else "pick", r, top, held, overview)
            if overview.POOL_Q == HALVED:
                _keep(top, held, (held.where[0] & (2 << OWNED), held.where[1]), overview)
    return Held(held.lane, held.place, held.where, dealt, held.parts, held.first, top)


@gluon.jit
def finish(held, i, q_block, k_block, overview):
    """Store what is left after the last step."""
    where = _whereabouts(i, q_block, k_block, overview)
    if overview.MAXIMA and overview.POOL_Q > HALVED:
        _keep(held.top, held, where, overview)
    if overview.SUMS and overview.POOL_Q > AT_ONCE:
        parts = resume(held, overview).parts
        if overview.POOL_Q > HALVED:
            parts = _run("ask 2", parts, overview)
            parts = _run("ask 1", parts, overview)
        _land(parts, held, where, overview)


@gluon.jit
def sums_of(p, overview, layout: gl.constexpr):
    """The column sums of a block, as `sum_by_thread`; from the overview's sums where there are any, so that
    no cell is added twice."""
    if overview.SUMS:
        sums = gl.convert_layout(gl.sum(_lines_of(p, overview.POOL_Q, False), 2), layout)
    else:
        sums = sum_by_thread(p, SIDE)
    return sums


@gluon.jit
def valid_blocks(k_block, k_blocks):
    """Which of the two blocks of a step exist, as bits."""
    there = (k_block.to(gl.uint32) < k_blocks).to(gl.int32)
    there += ((k_block + 1).to(gl.uint32) < k_blocks).to(gl.int32) * 2
    return there


@gluon.jit
def _seat_of(x, overview):
    """A thread's lane number, with a bit from OWNED on for the block of a step of which it owns a pooled
    block.

    And the place of its first pooled block, relative to that of the block's first cell.
    """
    layout: gl.constexpr = x.type.layout
    warp: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    row: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    column: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout)))
    lane = gl.arange(0, 8, row)[None, :, None, None] * 4 + gl.arange(0, 4, column)[None, None, :, None]
    first: gl.constexpr = 1 << OWNED
    idle: gl.constexpr = entry(IDLE, overview.POOL_Q, overview.POOL_K)
    block: gl.constexpr = entry(BLOCK, overview.POOL_Q, overview.POOL_K)
    owned = gl.where((lane & block) != 0, 2 * first, first)
    lane = lane + gl.where((lane & idle) == 0, owned, 0)
    place = gl.arange(0, 4, warp)[:, None, None, None] * (16 // overview.POOL_K) + lane * 0
    steps: gl.constexpr = entry(STEPS, overview.POOL_Q, overview.POOL_K)
    for bit in gl.static_range(5):
        place += ((lane >> bit) & 1) * (steps[bit][0] * overview.across + steps[bit][1])
    return lane, place


@gluon.jit
def _whereabouts(i, q_block, k_block, overview):
    """Which blocks of a step exist, as bits of `_seat_of`, and where their pooled blocks begin."""
    there = valid_blocks(k_block, overview.k_blocks)
    there = gl.where(i >= 0, there << OWNED, 0)
    down: gl.constexpr = SIDE // overview.POOL_Q
    right: gl.constexpr = SIDE // overview.POOL_K
    return there, (q_block * down) * overview.across + k_block * right


@gluon.jit
def _lines_of(p, POOL_Q: gl.constexpr, LARGEST: gl.constexpr):
    """Sums over the cells of a row that lie in one pooled block and one thread, (SIDE, 4, blocks).

    With LARGEST the largest weight, as integers: weights are not negative, so these have the same order.
    """
    cells: gl.constexpr = max(min(POOL_Q, 2), POOL_Q // 4)
    if LARGEST:
        p = p.to(gl.uint32, bitcast=True)
    own = gl.reshape(split_by_thread(p, SIDE), [SIDE, 4, 16 // cells, cells])
    return gl.max(own, 3) if LARGEST else gl.sum(own, 3)


@gluon.jit
def _parts_of(p, overview, LARGEST: gl.constexpr):
    """What each thread holds of pooled blocks, (4 warps, 8 and 4 threads, blocks)."""
    lines = _lines_of(p, overview.POOL_Q, LARGEST)
    x = gl.reshape(lines, [4, 2, 8, 4, lines.shape[2]])
    if overview.POOL_K == 16:
        x = gl.max(x, 1) if LARGEST else gl.sum(x, 1)
    else:
        x = gl.reshape(gl.permute(x, (0, 2, 3, 4, 1)), [4, 8, 4, 2 * lines.shape[2]])
    return x


@gluon.jit
def _store(p, held, q_block, k_block, overview):
    """Store the pooled blocks of a block at once, where only few threads hold parts of each."""
    _, at = _whereabouts(0, q_block, k_block, overview)
    inside = (k_block.to(gl.uint32) < overview.k_blocks).to(gl.int32)
    if overview.SUMS:
        x = _parts_of(p, overview, False)
        x = _run("spread sums", (x, held.lane), overview)
        to = (overview.sums + at).to(gl.int64)
        _run("store sums", (x, held.place, inside, overview.across, to), overview)
    if overview.MAXIMA:
        x = _parts_of(p, overview, True)
        x = _run("spread maxima", (x, held.lane), overview)
        to = (overview.maxima + at).to(gl.int64)
        _run("store maxima", (x, held.place, inside, overview.across, to), overview)


@gluon.jit
def _dealt(one, other, held, overview):
    """Deal sums to four threads: those of one block of cells, or of both blocks if each has two."""
    one = _parts_of(one, overview, False)
    if overview.POOL_Q == HALVED:
        one = _run("spread sums", (one, held.lane), overview)
    other = _parts_of(other, overview, False) if overview.POOL_Q == JOINT else one
    return _run("deal", (one, other, held.lane), overview)


@gluon.jit
def _land(parts, held, where, overview):
    """Combine the last two parts of a thread's sum, and store it."""
    to = (overview.sums + where[1]).to(gl.int64)
    _run("land", (parts[0], parts[1], held.lane, held.place, where[0], to), overview)


@gluon.jit
def _picked(NAME: gl.constexpr, p, before, held, overview):
    """The largest weights of a warp's pooled blocks, each to its owner (with "pick second": or what it had
    `before`)."""
    x = _parts_of(p, overview, True)
    return _run(NAME, (x, before, held.lane), overview)


@gluon.jit
def _keep(top, held, where, overview):
    """Store a thread's largest weight."""
    to = (overview.maxima + where[1]).to(gl.int64)
    _run("keep", (top, held.lane, held.place, where[0], to), overview)


@gluon.jit
def _run(NAME: gl.constexpr, operands, overview):
    """Run a piece of PTX of pooling_ptx.py. It returns two parts of sums, or one value of the first operand's
    type."""
    letters: gl.constexpr = entry(OPERANDS, NAME)
    count: gl.constexpr = entry(COUNT, overview.POOL_Q, overview.POOL_K)
    return gl.inline_asm_elementwise(
        entry(TEXTS, NAME, overview.POOL_Q, overview.POOL_K), kinds(letters, count), operands,
        dtype=(gl.float32, gl.float32) if letters[1] == "F" else operands[0].dtype,
        is_pure=False, pack=count)  # fmt: skip


@gluon.constexpr_function
def entry(table, *key):
    """An entry of a table of pooling_ptx.py, by name, by block size, or by both."""
    return table[key if len(key) > 1 else key[0]]


@gluon.constexpr_function
def kinds(letters, count):
    """Constraints of operands: one letter per operand of `count` registers; results are capitals."""
    names = ((f"=&{letter.lower()}" if letter.isupper() else letter) for letter in letters)
    return ",".join(name for name in names for _ in range(count))
