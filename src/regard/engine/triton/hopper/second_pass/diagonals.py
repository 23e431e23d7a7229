"""Sums of each thread's cells along the diagonals of two adjacent blocks.

Of a block of 64 keys (rows) and 64 queries a thread holds two keys, eight apart, and two of every eight
queries. The cell of its second key lies on the same diagonal as the cell of its first key eight queries
earlier, so one sum serves both. Two blocks with the same queries and adjacent keys need 17 × 2 sums per
thread; one sum per cell would take 32 × 2. `reduce_diagonals_kernel` adds up the sums of different threads
afterwards.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportReturnType=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.thread_columns import eighths

__all__ = ["PARTIALS", "add_diagonals", "diagonals_at_first", "store_diagonals"]

# Sums per thread (each for two queries), and how many threads of a warpgroup hold each of them.
SUMS, ACROSS = gl.constexpr(17), gl.constexpr(256)
# Partial sums that a warpgroup stores.
PARTIALS = gl.constexpr(SUMS.value * ACROSS.value)


@gluon.jit
def diagonals_at_first(zeros):
    """Sums of 0, in the layout of a block."""
    sums = eighths(_by_key(zeros)[0])
    return sums + sums + sums[:1]


@gluon.jit
def add_diagonals(sums, p, BLOCK: gl.constexpr):
    """Add block number BLOCK (0 or 1, in the order of keys) to the sums.

    A block adds to nine sums: the cells of a thread's first key to the last eight, those of its second key to
    the first eight. The first diagonal of the second block is the last one of the first block.
    """
    FIRST: gl.constexpr = 8 * (1 - BLOCK)
    one, other = _by_key(p)
    a, b, c, d, e, f, g, h = eighths(one)
    some = sums[FIRST : FIRST + 9]
    a, b, c, d = some[1] + a, some[2] + b, some[3] + c, some[4] + d
    e, f, g, h = some[5] + e, some[6] + f, some[7] + g, some[8] + h
    more = eighths(other)
    four = (some[0] + more[0], a + more[1], b + more[2], c + more[3])
    last = (d + more[4], e + more[5], f + more[6], g + more[7], h)
    return sums[:FIRST] + four + last + sums[FIRST + 9 :]


@gluon.jit
def store_diagonals(sums, to):
    """Store a warpgroup's sums, (SUMS, ACROSS) numbers; ACROSS is (warp, row of eight, column of eight)."""
    layout: gl.constexpr = sums[0].type.layout
    warp: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    row: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    pair: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout)))
    column: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    to += gl.arange(0, 4, warp)[:, None, None, None] * 64 + gl.arange(0, 8, row)[None, :, None, None] * 8
    to += gl.arange(0, 4, pair)[None, None, :, None] * 2 + gl.arange(0, 2, column)[None, None, None, :]
    for i in gl.static_range(SUMS):
        gl.store(to + i * ACROSS, sums[i])


@gluon.jit
def _by_key(p):
    """The cells of each thread's first key, and of its second: (warp, row, pair, column, group of eight
    queries)."""
    cells = gl.reshape(p, [4, 2, 8, 2, 2, 2, 4, 2])
    return gl.split(gl.permute(cells, (0, 2, 6, 7, 5, 4, 3, 1)))
