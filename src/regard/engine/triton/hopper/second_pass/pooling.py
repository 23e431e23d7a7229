"""Pooled blocks of the second pass that are smaller than 64 × 64, and their maxima.

Each thread first reduces its own cells of a pooled block. Then the threads exchange these partial results
(pooling_ptx.py has the PTX and the layouts). If all threads of a warp hold partial results of a block, the
exchanges are pipelined: each piece of PTX combines the results of the shuffle that the previous piece issued
some hundred cycles earlier, and sums are stored one step later. By block height:

    1, 2, 4   Few threads hold partial results of a block: it is stored at once.
    8         A thread holds too many sums to scatter, so they are halved first. Maxima are stored at once:
              there are no registers to hold them until the next step.
    16        Scatter four sums to four threads, halve both blocks of a step, then two more shuffles.
    32        A block of cells has two sums: scatter both blocks of a step at once, then three shuffles.
    64        Maxima only: sums are computed from the column sums.
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
    "before_first_exp",
    "before_second_exp",
    "finish",
    "fold_first",
    "fold_second",
    "initial_state",
    "sums_of",
    "valid_blocks",
]

SIDE = gl.constexpr(64)
# From this bit on, PoolState.lane holds flags: the thread owns a pooled block of a step's first, second
# block.
OWNED = gl.constexpr(8)
# Heights of pooled blocks: up to the first they are stored at once, at the second sums are halved before they
# are scattered, at the third both blocks of a step are scattered at once.
AT_ONCE, HALVED, JOINT = gl.constexpr(4), gl.constexpr(8), gl.constexpr(32)


class Overview(NamedTuple):
    """The requested overview: sums or maxima or both, its block size, pointers to this head's overview, and
    the number of blocks `across` it."""

    SUMS: gl.constexpr
    MAXIMA: gl.constexpr
    POOL_Q: gl.constexpr
    POOL_K: gl.constexpr
    sums: gl.tensor
    maxima: gl.tensor
    across: gl.tensor
    k_blocks: gl.tensor


class PoolState(NamedTuple):
    """What a thread keeps in registers from one block to the next.

    lane, place: which pooled blocks it owns (`_lane_and_offset`).
    where: which blocks are stored next, and where (`_store_target`).
    scattered: two or four partial sums from the last scatter.
    parts: two partial sums of the block that it owns of the last step.
    first: its sum of the first block of this step.
    top: the largest weight of the block that it owns.
    """

    lane: gl.tensor
    place: gl.tensor
    where: gl.tuple
    scattered: gl.tuple
    parts: gl.tuple
    first: gl.tensor
    top: gl.tensor


@gluon.jit
def initial_state(zeros, overview):
    """The state before the first step."""
    x = _partials(zeros, overview, False)
    lane, place = _lane_and_offset(x, overview)
    return PoolState(lane, place, (0, 0), (x, x), (x, x), x, x.to(gl.uint32, bitcast=True))


@gluon.jit
def before_first_exp(state, overview):
    """Before the exponentials of a step's first block: combine the last scatter, and issue a shuffle."""
    parts = state.parts
    if overview.SUMS and overview.POOL_Q == JOINT:
        parts = _run_ptx("shuffle 3", state.scattered, overview)
    elif overview.SUMS and overview.POOL_Q > AT_ONCE:
        parts = _run_ptx(
            "exchange", (state.scattered[0], state.scattered[1], state.first, state.lane), overview
        )
    return PoolState(state.lane, state.place, state.where, state.scattered, parts, state.first, state.top)


@gluon.jit
def fold_first(state, p, i, q_block, k_block, overview):
    """Fold the first block of a step."""
    scattered, parts, top = state.scattered, state.parts, state.top
    # Sums and maxima that are stored late belong to the previous step.
    where = _store_target(i - 1, q_block - 1, k_block - 1, overview)
    if overview.POOL_Q <= AT_ONCE:
        _store_blocks(p, state, q_block, k_block, overview)
    else:
        if overview.SUMS:
            if overview.POOL_Q == HALVED:
                _store_sum(parts, state, where, overview)
            else:
                parts = _run_ptx("shuffle 2", parts, overview)
            if overview.POOL_Q < JOINT:
                scattered = _scatter(p, p, state, overview)
        if overview.MAXIMA:
            if overview.POOL_Q > HALVED:
                _store_maximum(top, state, where, overview)
            top = _warp_maximum("warp maximum", p, top, state, overview)
            if overview.POOL_Q == HALVED:
                where = _store_target(i, q_block, k_block, overview)
                _store_maximum(top, state, (where[0] & (1 << OWNED), where[1]), overview)
    return PoolState(state.lane, state.place, where, scattered, parts, state.first, top)


@gluon.jit
def before_second_exp(state, overview):
    """Before the exponentials of a step's second block: combine the first block's scatter, and issue another
    shuffle."""
    first, parts = state.first, state.parts
    if overview.SUMS and overview.POOL_Q > AT_ONCE:
        if overview.POOL_Q < JOINT:
            first = _run_ptx("combine", state.scattered, overview)
        if overview.POOL_Q > HALVED:
            parts = _run_ptx("shuffle 1", parts, overview)
    return PoolState(state.lane, state.place, state.where, state.scattered, parts, first, state.top)


@gluon.jit
def fold_second(state, p, r, q_block, k_block, overview):
    """Fold the second block of a step; `p` is the first."""
    scattered, top = state.scattered, state.top
    if overview.POOL_Q <= AT_ONCE:
        _store_blocks(r, state, q_block, k_block + 1, overview)
    else:
        if overview.SUMS:
            if overview.POOL_Q > HALVED:
                _store_sum(state.parts, state, state.where, overview)
            scattered = _scatter(p if overview.POOL_Q == JOINT else r, r, state, overview)
        if overview.MAXIMA:
            top = _warp_maximum(
                "warp maximum second" if overview.POOL_Q > HALVED else "warp maximum", r, top, state, overview
            )
            if overview.POOL_Q == HALVED:
                _store_maximum(top, state, (state.where[0] & (2 << OWNED), state.where[1]), overview)
    return PoolState(state.lane, state.place, state.where, scattered, state.parts, state.first, top)


@gluon.jit
def finish(state, i, q_block, k_block, overview):
    """After the last step: store the results that are still in registers."""
    where = _store_target(i, q_block, k_block, overview)
    if overview.MAXIMA and overview.POOL_Q > HALVED:
        _store_maximum(state.top, state, where, overview)
    if overview.SUMS and overview.POOL_Q > AT_ONCE:
        parts = before_first_exp(state, overview).parts
        if overview.POOL_Q > HALVED:
            parts = _run_ptx("shuffle 2", parts, overview)
            parts = _run_ptx("shuffle 1", parts, overview)
        _store_sum(parts, state, where, overview)


@gluon.jit
def sums_of(p, overview, layout: gl.constexpr):
    """The column sums of a block, (SIDE, 4), as `sum_by_thread` returns them. If the overview needs partial
    sums of the same cells, they are computed from those."""
    if overview.SUMS:
        sums = gl.convert_layout(gl.sum(_thread_partials(p, overview.POOL_Q, False), 2), layout)
    else:
        sums = sum_by_thread(p, SIDE)
    return sums


@gluon.jit
def valid_blocks(k_block, k_blocks):
    """Which of the two blocks of a step lie within the map: bit 0 for the first, bit 1 for the second."""
    there = (k_block.to(gl.uint32) < k_blocks).to(gl.int32)
    there += ((k_block + 1).to(gl.uint32) < k_blocks).to(gl.int32) * 2
    return there


@gluon.jit
def _lane_and_offset(x, overview):
    """A thread's lane number with the flags from bit OWNED on, and the offset of its first pooled block from
    the pooled block of the first cell.
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
def _store_target(i, q_block, k_block, overview):
    """Which blocks of a step lie within the map, as flags from bit OWNED on; the offset of their pooled
    blocks in the overview."""
    there = valid_blocks(k_block, overview.k_blocks)
    there = gl.where(i >= 0, there << OWNED, 0)
    down: gl.constexpr = SIDE // overview.POOL_Q
    right: gl.constexpr = SIDE // overview.POOL_K
    return there, (q_block * down) * overview.across + k_block * right


@gluon.jit
def _thread_partials(p, POOL_Q: gl.constexpr, LARGEST: gl.constexpr):
    """Sums over the cells of one row, one pooled block and one thread: (SIDE, 4 threads, blocks).

    With LARGEST, maxima of the weights' bits: weights are not negative, so bits and weights sort alike.
    """
    cells: gl.constexpr = max(min(POOL_Q, 2), POOL_Q // 4)
    if LARGEST:
        p = p.to(gl.uint32, bitcast=True)
    own = gl.reshape(split_by_thread(p, SIDE), [SIDE, 4, 16 // cells, cells])
    return gl.max(own, 3) if LARGEST else gl.sum(own, 3)


@gluon.jit
def _partials(p, overview, LARGEST: gl.constexpr):
    """Each thread's partial results of pooled blocks, (4 warps, 8 threads, 4 threads, blocks)."""
    lines = _thread_partials(p, overview.POOL_Q, LARGEST)
    x = gl.reshape(lines, [4, 2, 8, 4, lines.shape[2]])
    if overview.POOL_K == 16:
        x = gl.max(x, 1) if LARGEST else gl.sum(x, 1)
    else:
        x = gl.reshape(gl.permute(x, (0, 2, 3, 4, 1)), [4, 8, 4, 2 * lines.shape[2]])
    return x


@gluon.jit
def _store_blocks(p, state, q_block, k_block, overview):
    """Reduce and store the pooled blocks of a block of cells, if few threads hold partial results of each."""
    _, at = _store_target(0, q_block, k_block, overview)
    inside = (k_block.to(gl.uint32) < overview.k_blocks).to(gl.int32)
    if overview.SUMS:
        x = _partials(p, overview, False)
        x = _run_ptx("halve sums", (x, state.lane), overview)
        to = (overview.sums + at).to(gl.int64)
        _run_ptx("store sums", (x, state.place, inside, overview.across, to), overview)
    if overview.MAXIMA:
        x = _partials(p, overview, True)
        x = _run_ptx("halve maxima", (x, state.lane), overview)
        to = (overview.maxima + at).to(gl.int64)
        _run_ptx("store maxima", (x, state.place, inside, overview.across, to), overview)


@gluon.jit
def _scatter(one, other, state, overview):
    """Scatter sums to four threads: those of one block of cells, or of both blocks if each has two."""
    one = _partials(one, overview, False)
    if overview.POOL_Q == HALVED:
        one = _run_ptx("halve sums", (one, state.lane), overview)
    other = _partials(other, overview, False) if overview.POOL_Q == JOINT else one
    return _run_ptx("scatter", (one, other, state.lane), overview)


@gluon.jit
def _store_sum(parts, state, where, overview):
    """Combine the last two partial results of a thread's sum and store it."""
    to = (overview.sums + where[1]).to(gl.int64)
    _run_ptx("store own sum", (parts[0], parts[1], state.lane, state.place, where[0], to), overview)


@gluon.jit
def _warp_maximum(NAME: gl.constexpr, p, before, state, overview):
    """The largest weight of each pooled block of a warp, in the thread that owns the block; with
    "warp maximum second", owners of the first block's keep `before`."""
    x = _partials(p, overview, True)
    return _run_ptx(NAME, (x, before, state.lane), overview)


@gluon.jit
def _store_maximum(top, state, where, overview):
    """Store the maximum of the block that a thread owns."""
    to = (overview.maxima + where[1]).to(gl.int64)
    _run_ptx("store own maximum", (top, state.lane, state.place, where[0], to), overview)


@gluon.jit
def _run_ptx(NAME: gl.constexpr, operands, overview):
    """Run a piece of PTX of pooling_ptx.py. It returns two partial sums, or one value of the first operand's
    type."""
    letters: gl.constexpr = entry(OPERANDS, NAME)
    count: gl.constexpr = entry(COUNT, overview.POOL_Q, overview.POOL_K)
    return gl.inline_asm_elementwise(
        entry(TEXTS, NAME, overview.POOL_Q, overview.POOL_K), constraints_of(letters, count), operands,
        dtype=(gl.float32, gl.float32) if letters[1] == "F" else operands[0].dtype,
        is_pure=False, pack=count)  # fmt: skip


@gluon.constexpr_function
def entry(table, *key):
    """An entry of a table of pooling_ptx.py, by name, by block size, or by both."""
    return table[key if len(key) > 1 else key[0]]


@gluon.constexpr_function
def constraints_of(letters, count):
    """The constraint string of inline PTX: one letter per operand of `count` registers, capital for
    results."""
    names = ((f"=&{letter.lower()}" if letter.isupper() else letter) for letter in letters)
    return ",".join(name for name in names for _ in range(count))
