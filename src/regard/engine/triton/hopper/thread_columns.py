"""The columns that one thread holds of a tile whose rows four threads share.

Sums along a row stay in four parts, without communication between threads, until the whole is needed.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = [
    "HALF",
    "columns_of",
    "eighths",
    "halves_of",
    "join_threads",
    "max_in_thread",
    "split_by_thread",
    "sum_by_thread",
    "sum_in_thread",
    "unstack",
]

# Rows that a warpgroup holds of its program's own.
HALF = gl.constexpr(64)
LARGER = gl.constexpr("max.s32 $0, $1, $2;")


@gluon.jit
def split_by_thread(x, COLUMNS: gl.constexpr):
    """A tile as (HALF, 4, COLUMNS // 4): four threads share a row, and the last axis is what one has."""
    pairs = gl.permute(gl.reshape(x, [HALF, COLUMNS // 8, 4, 2]), (0, 2, 1, 3))
    return gl.reshape(pairs, [HALF, 4, COLUMNS // 4])


@gluon.jit
def join_threads(x, COLUMNS: gl.constexpr):
    """What `split_by_thread` made, as a tile again."""
    pairs = gl.permute(gl.reshape(x, [HALF, 4, COLUMNS // 8, 2]), (0, 2, 1, 3))
    return gl.reshape(pairs, [HALF, COLUMNS])


@gluon.jit
def columns_of(x, COLUMNS: gl.constexpr):
    """The columns of what `split_by_thread` made, without the bits that say whose thread it is.

    These are known when compiled; those bits are twice the thread's number among the four of a row.
    """
    layout: gl.constexpr = x.type.layout
    own = gl.arange(0, COLUMNS // 4, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
    return ((own >> 1) * 8 + (own & 1))[None, None, :]


@gluon.jit
def eighths(x):
    """A tensor whose last three axes are of length 2 as eight tensors, by the bits from the last axis on."""
    before, behind = gl.split(x)
    return _four(before) + _four(behind)


@gluon.jit
def _four(x):
    before, behind = gl.split(x)
    return gl.split(before) + gl.split(behind)


@gluon.jit
def halves_of(x):
    """What a thread has along the last of three axes, in two halves."""
    halves = gl.reshape(x, [x.shape[0], x.shape[1], 2, x.shape[2] // 2])
    return gl.split(gl.permute(halves, (0, 1, 3, 2)))


@gluon.jit
def unstack(x, layout: gl.constexpr):
    """What a thread has along the last of three axes, one after the other.

    For folds from the first to the last: `gl.reduce` may take any order, and has taken several.
    """
    if x.shape[2] == 2:
        before, behind = gl.split(x)
        return gl.convert_layout(before, layout), gl.convert_layout(behind, layout)
    else:
        before, behind = halves_of(x)
        return unstack(before, layout) + unstack(behind, layout)


@gluon.jit
def sum_in_thread(x, layout: gl.constexpr):
    """The sum of what a thread has along the last of three axes, from the first to the last."""
    parts = unstack(x, layout)
    total = parts[0]
    for i in gl.static_range(1, x.shape[2]):
        total += parts[i]
    return total


@gluon.jit
def max_in_thread(x, layout: gl.constexpr):
    """The largest of what a thread has along the last of three axes, from the first to the last."""
    parts = unstack(x, layout)
    found = parts[0]
    for i in gl.static_range(1, x.shape[2]):
        found = _larger(found, parts[i])
    return found


@gluon.jit
def _larger(x, y):
    """The larger of two. For integers this is inline PTX: the assembler finds the largest of three in chains,
    which the compiler before it turns into trees."""
    if x.dtype == gl.int32:
        return gl.inline_asm_elementwise(LARGER, "=r,r,r", [x, y], dtype=gl.int32, is_pure=True, pack=1)
    else:
        return gl.maximum(x, y)


@gluon.jit
def sum_by_thread(x, COLUMNS: gl.constexpr):
    """Sums over the columns that one thread holds of a tile, (HALF, 4): four threads share a row and don't
    communicate.

    One sum over all of them, so that products are added as they are made.
    """
    own = split_by_thread(x, COLUMNS)
    layout: gl.constexpr = gl.SliceLayout(2, own.type.layout)
    return sum_in_thread(own, layout)
