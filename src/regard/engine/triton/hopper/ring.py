"""Helpers that the Hopper kernels share: rings of tiles in shared memory, barriers, transposed products."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma

from regard.engine.triton.hopper.gluon_compat import async_load, reinterpret
from regard.engine.triton.hopper.thread_ops_ptx import NAMED_BARRIER_OPERANDS, named_barrier

__all__ = [
    "LOG2E",
    "PLACE",
    "acquire",
    "barriers",
    "block_and_head",
    "dot_transposed",
    "line_ring",
    "load_tiles",
    "mask_tile",
    "pad_code",
    "release",
    "ring",
    "run_of",
]

LOG2E = gl.constexpr(1.4426950408889634)
# The first of the sixteen named barriers that the compiler leaves unused; slots of rings use them.
PLACE = gl.constexpr(8)


@gluon.jit
def ring(DESCRIPTOR, STAGES: gl.constexpr, ROWS: gl.constexpr, DIM: gl.constexpr):
    """Shared memory for STAGES tiles, in two views: (STAGES, 1, 1, ROWS, DIM) for TMA, whose tiles have axes
    for batch row and head, and (STAGES, ROWS, DIM) for the matrix units."""
    dtype: gl.constexpr = DESCRIPTOR.dtype
    flat: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, DIM], dtype)
    tma_view = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], DESCRIPTOR.layout)
    return tma_view, reinterpret(tma_view, dtype, [STAGES, ROWS, DIM], flat)


@gluon.jit
def line_ring(DESCRIPTOR, STAGES: gl.constexpr, COUNT: gl.constexpr):
    """Shared memory for STAGES lines of COUNT numbers, in two views: for TMA and for reading."""
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    tma_view = gl.allocate_shared_memory(gl.float32, [STAGES, 1, COUNT], DESCRIPTOR.layout)
    return tma_view, reinterpret(tma_view, gl.float32, [STAGES, COUNT], flat)


@gluon.jit
def barriers(NUMBER: gl.constexpr, COUNT: gl.constexpr):
    """mbarriers, each of which completes after COUNT arrivals."""
    found = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(found.index(i), count=COUNT)
    return found


@gluon.jit
def release(place, WARPGROUPS: gl.constexpr):
    """Signal that this warpgroup, one of WARPGROUPS, no longer reads a slot of a ring.

    No warp waits here. An mbarrier would make the four warps of the warpgroup wait for each other.
    """
    number = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])) * 0 + (PLACE + place)
    text: gl.constexpr = named_barrier("arrive", WARPGROUPS)
    gl.inline_asm_elementwise(text, NAMED_BARRIER_OPERANDS, [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def acquire(place, WARPGROUPS: gl.constexpr):
    """Wait until no warpgroup reads a slot any more; called by the warp that loads."""
    number = gl.arange(0, 32, gl.BlockedLayout([1], [32], [1], [0])) * 0 + (PLACE + place)
    text: gl.constexpr = named_barrier("sync", WARPGROUPS)
    gl.inline_asm_elementwise(text, NAMED_BARRIER_OPERANDS, [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def pad_code(INSTRUCTIONS: gl.constexpr):
    """Insert no-ops, so that the code before and after them lies farther apart.

    Code at a distance of about a multiple of 16 KiB competes for the same lines of the instruction cache.
    Loops that two warpgroups run at once took 1 to 2 % longer with 48 to 50 KiB between them.
    """
    thread = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0]))
    text: gl.constexpr = "bar.warp.sync 0xffffffff; " * INSTRUCTIONS + "mov.b32 $0, $1;"
    gl.inline_asm_elementwise(text, "=r,r", [thread], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def block_and_head(across):
    """A program's block number and head; with interleaved heads (`head_order.py`) heads come first."""
    one, other = gl.program_id(0), gl.program_id(1)
    return gl.where(across > 0, other, one), gl.where(across > 0, one, other)


@gluon.jit
def run_of(ORDER, BLOCKS, plane, number):
    """The block that program `number` computes, and its run of tiles: start, stop, and start and stop of the
    full tiles (`Schedule.blocks`)."""
    block = gl.load(ORDER + plane + number)
    bounds = BLOCKS + (plane + block) * 4
    return block, gl.load(bounds), gl.load(bounds + 1), gl.load(bounds + 2), gl.load(bounds + 3)


# fmt: off
@gluon.jit
def load_tiles(
    K, V, k_ring, v_ring, k_ready, v_ready, batch, kv_head, first, count,
    STEP: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The loading warp: load tiles of keys and values into two rings, in rising (STEP 1) or falling (STEP -1)
    order.

    Named barriers 0 … STAGES - 1 belong to the slots for keys, the next STAGES to those for values.
    """
    for i in range(count):
        slot = i % STAGES
        row = (first + STEP * i) * BLOCK
        if i >= STAGES:
            acquire(slot, 2)
        mbarrier.expect(k_ready.index(slot), K.block_type.nbytes)
        async_load(K, [batch, kv_head, row, 0], k_ready.index(slot), k_ring.index(slot))
        if i >= STAGES:
            acquire(STAGES + slot, 2)
        mbarrier.expect(v_ready.index(slot), V.block_type.nbytes)
        async_load(V, [batch, kv_head, row, 0], v_ready.index(slot), v_ring.index(slot))


@gluon.jit
def mask_tile(x, j, low, high, full_first, full_stop, other, BLOCK: gl.constexpr, layout: gl.constexpr):
    """Tile j with `other` where a query may not see a key; a full tile is returned unchanged."""
    if (j < full_first) | (j >= full_stop):
        k_row = j * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout))[None, :]
        x = gl.where((k_row >= low[:, None]) & (k_row < high[:, None]), x, other)
    return x


@gluon.jit
def dot_transposed(a, ring, slot, zeros):
    """Issue the product of `a` with a transposed tile."""
    return warpgroup_mma(a, ring.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
