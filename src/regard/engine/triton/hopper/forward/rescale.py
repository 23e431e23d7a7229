"""Rescales the running sums of a row in the forward, when a tile's scores far exceed the row's base."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.forward.rescale_ptx import RESCALE_TILE, RESCALE_TILE_OPERANDS
from regard.engine.triton.hopper.thread_columns import join_threads, split_by_thread
from regard.engine.triton.hopper.thread_ops_ptx import RESCALE, RESCALE_OPERANDS

__all__ = ["rescale_if_needed", "rescale_output"]


# fmt: off
@gluon.jit
def rescale_if_needed(
    p, acc, most, base, total, energy, distance, tile_maxima, again,
    ENTROPIES: gl.constexpr, DISTANCES: gl.constexpr, WHOLE_OUTPUT: gl.constexpr, LOGS: gl.constexpr,
    FIND_KEY: gl.constexpr, PARTS: gl.constexpr, DIM: gl.constexpr, dtype: gl.constexpr,
):
# fmt: on
    """Raise the base of rows whose scores in this tile far exceed it: rescale their weights, output and sums.
    If weights may be infinite, compute the weights and their sums again.

    This is one branch, rarely taken. The test is on `most`: each thread's largest weight of each row, or with
    LOGS its logarithm (base 2). The output is rescaled here only if it has as many numbers as the tile has
    weights (WHOLE_OUTPUT); otherwise the factor for it is returned in its place.
    """
    rows: gl.constexpr = base.type.layout
    half: gl.constexpr = dtype == gl.bfloat16
    it: gl.constexpr = (ENTROPIES, DISTANCES, WHOLE_OUTPUT, LOGS, FIND_KEY, PARTS, DIM, half)
    text: gl.constexpr = RESCALE_TILE[it]
    operands: gl.constexpr = RESCALE_TILE_OPERANDS[it]
    sums = (base[:, :, None], total[:, :, None])
    if ENTROPIES:
        sums += (energy[:, :, None],)
    if DISTANCES:
        sums += (distance[:, :, None],)
    if PARTS == 1:
        sums += (gl.convert_layout(gl.reshape(tile_maxima, base.shape), rows)[:, :, None],)
    elif PARTS == 2:
        before, behind = gl.split(tile_maxima)
        sums += (gl.convert_layout(before, rows)[:, :, None], gl.convert_layout(behind, rows)[:, :, None])
    given = (p, acc) if WHOLE_OUTPUT else (p,)
    results: gl.constexpr = (gl.float32,) * (4 + ENTROPIES + DISTANCES + PARTS)
    found = gl.inline_asm_elementwise(
        text, operands, given + (most[:, :, None],) + sums + again,  # noqa: RUF005
        dtype=results, is_pure=False, pack=p.shape[2] * 2)  # fmt: skip
    acc = found[1] if WHOLE_OUTPUT else _first_of(found[1], rows)
    base, total = _first_of(found[2], rows), _first_of(found[3], rows)
    if ENTROPIES:
        energy = _first_of(found[4], rows)
    if DISTANCES:
        distance = _first_of(found[4 + ENTROPIES], rows)
    maxima: gl.constexpr = tile_maxima.type.layout
    if PARTS == 1:
        one = _first_of(found[4 + ENTROPIES + DISTANCES], rows)
        tile_maxima = gl.convert_layout(one[:, :, None], maxima)
    elif PARTS == 2:
        one = _first_of(found[4 + ENTROPIES + DISTANCES], rows)
        other = _first_of(found[5 + ENTROPIES + DISTANCES], rows)
        tile_maxima = gl.convert_layout(gl.join(one, other), maxima)
    return found[0], acc, base, total, energy, distance, tile_maxima


@gluon.jit
def rescale_output(acc, left, DIM: gl.constexpr, layout: gl.constexpr):
    """Rescale an output of 64 dims by one factor per row. The factor is mostly 1, and then nothing is
    computed."""
    sums = split_by_thread(acc, DIM)
    factor = gl.convert_layout(left, gl.SliceLayout(2, sums.type.layout))[:, :, None]
    sums = gl.inline_asm_elementwise(
        RESCALE, RESCALE_OPERANDS, [sums, factor],
        dtype=gl.float32, is_pure=False, pack=DIM // 2)  # fmt: skip
    return gl.convert_layout(join_threads(sums, DIM), layout)


@gluon.jit
def _first_of(x, layout: gl.constexpr):
    """The first of each thread's values along the last axis."""
    for _ in gl.static_range(5):
        x = gl.split(gl.reshape(x, [x.shape[0], 4, x.shape[2] // 2, 2]))[0]
    return gl.convert_layout(gl.reshape(x, [x.shape[0], 4]), layout)
