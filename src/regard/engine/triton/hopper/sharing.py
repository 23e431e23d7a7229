"""What the kernels for Hopper have in common: rings of tiles in shared memory, barriers, turned products."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma

__all__ = ["HALF", "LOG2E", "barriers", "line_ring", "ring", "turned"]

LOG2E = gl.constexpr(1.4426950408889634)
# Rows that a warpgroup holds of its program's own.
HALF = gl.constexpr(64)


@gluon.jit
def ring(DESCRIPTOR, STAGES: gl.constexpr, ROWS: gl.constexpr, DIM: gl.constexpr):
    """Room for STAGES tiles, twice: the copy engine knows batch rows and heads as axes of length 1, and the
    matrix units want two axes."""
    dtype: gl.constexpr = DESCRIPTOR.dtype
    flat: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, DIM], dtype)
    boxes = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], DESCRIPTOR.layout)
    return boxes, boxes._reinterpret(dtype, [STAGES, ROWS, DIM], flat)


@gluon.jit
def line_ring(DESCRIPTOR, STAGES: gl.constexpr, COUNT: gl.constexpr):
    """Room for STAGES lines of COUNT numbers, for the copy engine and for who reads them."""
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    boxes = gl.allocate_shared_memory(gl.float32, [STAGES, 1, COUNT], DESCRIPTOR.layout)
    return boxes, boxes._reinterpret(gl.float32, [STAGES, COUNT], flat)


@gluon.jit
def barriers(NUMBER: gl.constexpr, COUNT: gl.constexpr):
    """Barriers that fall when COUNT have arrived."""
    found = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(found.index(i), count=COUNT)
    return found


@gluon.jit
def turned(a, ring, slot, nothing):
    """Issue the product of `a` with a tile turned over."""
    return warpgroup_mma(a, ring.index(slot).permute((1, 0)), nothing, use_acc=False, is_async=True)
