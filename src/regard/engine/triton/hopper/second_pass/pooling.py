"""Pooled blocks of the second pass that are smaller than 64 × 64, and their maxima.

A thread first reduces what it holds of a block, then threads exchange partial results (texts and layouts
are in pooling_ptx.py). Where all threads of a warp hold parts of a block, exchanges are pipelined: each
text combines what the one before it requested some hundred cycles earlier, and results are stored one step
later. By block height:

    1, 2, 4   Few threads hold parts of a block: it is stored at once.
    8         A thread holds too many sums to hand out, so they are halved first. Maxima are stored at
    once: there
              are no registers to hold them until the next step.
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
# Where a thread's number has which block of a step it owns.
OWNED = gl.constexpr(8)
# Queries of a block: up to so many it is stored at once, sums are halved first, two blocks are dealt at once.
AT_ONCE, HALVED, JOINT = gl.constexpr(4), gl.constexpr(8), gl.constexpr(32)


class Overview(NamedTuple):
    """What an overview is to have, of blocks of which size, and where one head's is, `across` blocks wide."""

    SUMS: gl.constexpr
    MAXIMA: gl.constexpr
    POOL_Q: gl.constexpr
    POOL_K: gl.constexpr
    sums: gl.tensor
    maxima: gl.tensor
    across: gl.tensor
    k_blocks: gl.tensor


class Held(NamedTuple):
    """What a thread holds of the overview from one block to the next.

    `lane` and `place` say which blocks are its own (`_seat_of`), and `where` what of them is stored next
    (`_whereabouts`). `dealt` are parts of sums as they were dealt last, `parts` two parts of its own sum of
    the last step, `first` its sum of the first block of this one, and `top` its own largest weight.
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
    """What a thread holds before the first step."""
    x = _parts_of(zeros, overview, False)
    lane, place = _seat_of(x, overview)
    return Held(lane, place, (0, 0), (x, x), (x, x), x, x.to(gl.uint32, bitcast=True))


@gluon.jit
def resume(held, overview):
    """Before the first block's exponentials: put together what was dealt at the last step, ask once."""
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
    # What is stored late is of the step before.
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
    """Before the second block's exponentials: put together what was dealt of the first, ask once more."""
    first, parts = held.first, held.parts
    if overview.SUMS and overview.POOL_Q > AT_ONCE:
        if overview.POOL_Q < JOINT:
            first = _run("gather", held.dealt, overview)
        if overview.POOL_Q > HALVED:
            parts = _run("ask 1", parts, overview)
    return Held(held.lane, held.place, held.where, held.dealt, parts, first, held.top)


@gluon.jit
def fold_second(held, p, r, q_block, k_block, overview):
    """Fold the second block of a step, `p` being the first."""
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
    """Store what is held behind the last step."""
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
    """`sum_by_thread` of a block, from the overview's sums where there are any: zeros is added twice."""
    if overview.SUMS:
        sums = gl.convert_layout(gl.sum(_lines_of(p, overview.POOL_Q, False), 2), layout)
    else:
        sums = sum_by_thread(p, SIDE)
    return sums


@gluon.jit
def valid_blocks(k_block, k_blocks):
    """Which of the two blocks of a step there are, in bits."""
    there = (k_block.to(gl.uint32) < k_blocks).to(gl.int32)
    there += ((k_block + 1).to(gl.uint32) < k_blocks).to(gl.int32) * 2
    return there


@gluon.jit
def _seat_of(x, overview):
    """A thread's number in its warp, with a bit further up for the block of a step that it owns a part of.

    And where its first block is in the overview, as seen from the first of 64 × 64 cells.
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
    """Which blocks of a step there are, in bits as `_seat_of` has them, and where the overview has them."""
    there = valid_blocks(k_block, overview.k_blocks)
    there = gl.where(i >= 0, there << OWNED, 0)
    down: gl.constexpr = SIDE // overview.POOL_Q
    right: gl.constexpr = SIDE // overview.POOL_K
    return there, (q_block * down) * overview.across + k_block * right


@gluon.jit
def _lines_of(p, POOL_Q: gl.constexpr, LARGEST: gl.constexpr):
    """Sums over cells of a row that lie in a block of the overview and in a thread, (SIDE, 4, blocks).

    Or the largest of these weights, as numbers that compare as they do: none is negative.
    """
    cells: gl.constexpr = max(min(POOL_Q, 2), POOL_Q // 4)
    if LARGEST:
        p = p.to(gl.uint32, bitcast=True)
    own = gl.reshape(split_by_thread(p, SIDE), [SIDE, 4, 16 // cells, cells])
    return gl.max(own, 3) if LARGEST else gl.sum(own, 3)


@gluon.jit
def _parts_of(p, overview, LARGEST: gl.constexpr):
    """What threads hold of blocks of the overview, (4 warps, 8 and 4 threads, blocks)."""
    lines = _lines_of(p, overview.POOL_Q, LARGEST)
    x = gl.reshape(lines, [4, 2, 8, 4, lines.shape[2]])
    if overview.POOL_K == 16:
        x = gl.max(x, 1) if LARGEST else gl.sum(x, 1)
    else:
        x = gl.reshape(gl.permute(x, (0, 2, 3, 4, 1)), [4, 8, 4, 2 * lines.shape[2]])
    return x


@gluon.jit
def _store(p, held, q_block, k_block, overview):
    """Store a block's part of the overview, where no block of that is more than a few threads know."""
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
    """Sums dealt among four threads: of one block of cells, or of both where these have two each."""
    one = _parts_of(one, overview, False)
    if overview.POOL_Q == HALVED:
        one = _run("spread sums", (one, held.lane), overview)
    other = _parts_of(other, overview, False) if overview.POOL_Q == JOINT else one
    return _run("deal", (one, other, held.lane), overview)


@gluon.jit
def _land(parts, held, where, overview):
    """Put together the last two parts of a thread's sum, and store it."""
    to = (overview.sums + where[1]).to(gl.int64)
    _run("land", (parts[0], parts[1], held.lane, held.place, where[0], to), overview)


@gluon.jit
def _picked(NAME: gl.constexpr, p, before, held, overview):
    """Largest weights of a warp's blocks, to each thread its own ("pick second": or what it has `before`)."""
    x = _parts_of(p, overview, True)
    return _run(NAME, (x, before, held.lane), overview)


@gluon.jit
def _keep(top, held, where, overview):
    """Store a thread's largest weight."""
    to = (overview.maxima + where[1]).to(gl.int64)
    _run("keep", (top, held.lane, held.place, where[0], to), overview)


@gluon.jit
def _run(NAME: gl.constexpr, operands, overview):
    """Run a text of pooling_ptx.py. Its results are two parts of sums, or one of the first operand's kind."""
    letters: gl.constexpr = entry(OPERANDS, NAME)
    count: gl.constexpr = entry(COUNT, overview.POOL_Q, overview.POOL_K)
    return gl.inline_asm_elementwise(
        entry(TEXTS, NAME, overview.POOL_Q, overview.POOL_K), kinds(letters, count), operands,
        dtype=(gl.float32, gl.float32) if letters[1] == "F" else operands[0].dtype,
        is_pure=False, pack=count)  # fmt: skip


@gluon.constexpr_function
def entry(table, *key):
    """What a table of pooling_ptx.py has for a name, or blocks of a size, or both."""
    return table[key if len(key) > 1 else key[0]]


@gluon.constexpr_function
def kinds(letters, count):
    """Kinds of operands: a letter for each operand of so many registers, results in capitals."""
    names = ((f"=&{letter.lower()}" if letter.isupper() else letter) for letter in letters)
    return ",".join(name for name in names for _ in range(count))
