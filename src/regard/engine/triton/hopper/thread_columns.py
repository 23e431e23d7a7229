"""The columns of a tile that one thread holds. Four threads share each row.

Each of the four threads keeps its own part of a sum along the row until the whole sum is needed.
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

# Rows of a program that one warpgroup computes.
HALF = gl.constexpr(64)
LARGER = gl.constexpr("max.s32 $0, $1, $2;")


@gluon.jit
def split_by_thread(x, COLUMNS: gl.constexpr):
    """A tile as (HALF, 4, COLUMNS // 4): the four threads of a row, and the columns each of them holds."""
    pairs = gl.permute(gl.reshape(x, [HALF, COLUMNS // 8, 4, 2]), (0, 2, 1, 3))
    return gl.reshape(pairs, [HALF, 4, COLUMNS // 4])


@gluon.jit
def join_threads(x, COLUMNS: gl.constexpr):
    """The inverse of `split_by_thread`."""
    pairs = gl.permute(gl.reshape(x, [HALF, 4, COLUMNS // 8, 2]), (0, 2, 1, 3))
    return gl.reshape(pairs, [HALF, COLUMNS])


@gluon.jit
def columns_of(x, COLUMNS: gl.constexpr):
    """The column numbers of what `split_by_thread` returned, without the bits that depend on the thread.

    They are compile-time constants. To get the column, add twice the thread's number among the four of its
    row.
    """
    layout: gl.constexpr = x.type.layout
    own = gl.arange(0, COLUMNS // 4, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
    return ((own >> 1) * 8 + (own & 1))[None, None, :]


@gluon.jit
def eighths(x):
    """Split a tensor whose last three axes have length 2 into eight tensors, indexed by those bits, last axis
    first."""
    before, behind = gl.split(x)
    return _four(before) + _four(behind)


@gluon.jit
def _four(x):
    before, behind = gl.split(x)
    return gl.split(before) + gl.split(behind)


@gluon.jit
def halves_of(x):
    """A thread's values along the last of three axes, split into two halves."""
    halves = gl.reshape(x, [x.shape[0], x.shape[1], 2, x.shape[2] // 2])
    return gl.split(gl.permute(halves, (0, 1, 3, 2)))


@gluon.jit
def unstack(x, layout: gl.constexpr):
    """A thread's values along the last of three axes, as separate tensors.

    For folds in a fixed order: the order of `gl.reduce` is unspecified and has changed between releases.
    """
    if x.shape[2] == 2:
        before, behind = gl.split(x)
        return gl.convert_layout(before, layout), gl.convert_layout(behind, layout)
    else:
        before, behind = halves_of(x)
        return unstack(before, layout) + unstack(behind, layout)


@gluon.jit
def sum_in_thread(x, layout: gl.constexpr):
    """The sum of a thread's values along the last of three axes, from first to last."""
    parts = unstack(x, layout)
    total = parts[0]
    for i in gl.static_range(1, x.shape[2]):
        total += parts[i]
    return total


@gluon.jit
def max_in_thread(x, layout: gl.constexpr):
    """The maximum of a thread's values along the last of three axes, from first to last."""
    parts = unstack(x, layout)
    found = parts[0]
    for i in gl.static_range(1, x.shape[2]):
        found = _larger(found, parts[i])
    return found


@gluon.jit
def _larger(x, y):
    """The maximum of two. For integers it is inline PTX: in a chain of these the assembler uses the
    three-input maximum; the compiler would turn the chain into a tree."""
    if x.dtype == gl.int32:
        return gl.inline_asm_elementwise(LARGER, "=r,r,r", [x, y], dtype=gl.int32, is_pure=True, pack=1)
    else:
        return gl.maximum(x, y)


@gluon.jit
def sum_by_thread(x, COLUMNS: gl.constexpr):
    """Row sums over the columns that each thread holds, (HALF, 4), without communication between the four
    threads.

    One chain of additions, so that products are added as soon as they are computed.
    """
    own = split_by_thread(x, COLUMNS)
    layout: gl.constexpr = gl.SliceLayout(2, own.type.layout)
    return sum_in_thread(own, layout)
