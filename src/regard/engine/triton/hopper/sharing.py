"""What the kernels for Hopper have in common: rings of tiles in shared memory, barriers, turned products,
sums that stay in a thread."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma

from regard.engine.triton.hopper.ptx import MEET_OPERANDS, meet

__all__ = [
    "HALF",
    "LOG2E",
    "PLACE",
    "barriers",
    "block_and_head",
    "by_thread",
    "columns_apart",
    "columns_of",
    "eighths",
    "feed",
    "free",
    "line_ring",
    "ring",
    "run_of",
    "seen",
    "stand_apart",
    "take",
    "threads_of",
    "tile_of",
    "turned",
]

LOG2E = gl.constexpr(1.4426950408889634)
# Rows that a warpgroup holds of its program's own.
HALF = gl.constexpr(64)
# The first of the hardware's sixteen barriers that the compiler has no use for: those of places in rings.
PLACE = gl.constexpr(8)


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
def free(place, WARPGROUPS: gl.constexpr):
    """Say that a warpgroup, one of so many, is done with a place of a ring.

    Nobody waits here, not even its four warps for one another, as they do for a barrier in memory.
    """
    number = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])) * 0 + (PLACE + place)
    text: gl.constexpr = meet("arrive", WARPGROUPS)
    gl.inline_asm_elementwise(text, MEET_OPERANDS, [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def take(place, WARPGROUPS: gl.constexpr):
    """Wait until all warpgroups are done with a place: for the warp that loads."""
    number = gl.arange(0, 32, gl.BlockedLayout([1], [32], [1], [0])) * 0 + (PLACE + place)
    text: gl.constexpr = meet("sync", WARPGROUPS)
    gl.inline_asm_elementwise(text, MEET_OPERANDS, [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def stand_apart(INSTRUCTIONS: gl.constexpr):
    """So many instructions that do nothing, for what is before them and behind them to lie farther apart.

    What lies about a multiple of 16 KiB apart has the same places in the instruction cache: loops that two
    warpgroups run at once, with 48 to 50 KiB between them, took 1 to 2 % longer.
    """
    thread = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0]))
    text: gl.constexpr = "bar.warp.sync 0xffffffff; " * INSTRUCTIONS + "mov.b32 $0, $1;"
    gl.inline_asm_elementwise(text, "=r,r", [thread], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def block_and_head(across):
    """The number of a program's block and its head: where heads take turns (`turns.py`), these come first."""
    one, other = gl.program_id(0), gl.program_id(1)
    return gl.where(across > 0, other, one), gl.where(across > 0, one, other)


@gluon.jit
def run_of(ORDER, BLOCKS, plane, number):
    """The block with that number in an order, and its run of tiles: from, to, and full ones from, to
    (`Schedule.blocks`)."""
    block = gl.load(ORDER + plane + number)
    bounds = BLOCKS + (plane + block) * 4
    return block, gl.load(bounds), gl.load(bounds + 1), gl.load(bounds + 2), gl.load(bounds + 3)


# fmt: off
@gluon.jit
def feed(
    K, V, k_ring, v_ring, k_ready, v_ready, batch, kv_head, first, count,
    STEP: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The copy engine's driver: tiles of keys and of values into two rings, upwards or downwards.

    Places of keys have the first numbers, those of values the next.
    """
    for i in range(count):
        slot = i % STAGES
        row = (first + STEP * i) * BLOCK
        if i >= STAGES:
            take(slot, 2)
        mbarrier.expect(k_ready.index(slot), K.block_type.nbytes)
        tma.async_copy_global_to_shared(K, [batch, kv_head, row, 0], k_ready.index(slot), k_ring.index(slot))
        if i >= STAGES:
            take(STAGES + slot, 2)
        mbarrier.expect(v_ready.index(slot), V.block_type.nbytes)
        tma.async_copy_global_to_shared(V, [batch, kv_head, row, 0], v_ready.index(slot), v_ring.index(slot))


@gluon.jit
def seen(x, j, low, high, full_first, full_stop, other, BLOCK: gl.constexpr, layout: gl.constexpr):
    """Tile j with `other` where a query may not see a key; nothing to do in the tiles every query sees."""
    if (j < full_first) | (j >= full_stop):
        k_row = j * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout))[None, :]
        x = gl.where((k_row >= low[:, None]) & (k_row < high[:, None]), x, other)
    return x


@gluon.jit
def turned(a, ring, slot, nothing):
    """Issue the product of `a` with a tile turned over."""
    return warpgroup_mma(a, ring.index(slot).permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit
def threads_of(x, COLUMNS: gl.constexpr):
    """A tile as (HALF, 4, COLUMNS // 4): four threads share a row, and the last axis is what one has."""
    pairs = gl.permute(gl.reshape(x, [HALF, COLUMNS // 8, 4, 2]), (0, 2, 1, 3))
    return gl.reshape(pairs, [HALF, 4, COLUMNS // 4])


@gluon.jit
def tile_of(x, COLUMNS: gl.constexpr):
    """What `threads_of` made, as a tile again."""
    pairs = gl.permute(gl.reshape(x, [HALF, 4, COLUMNS // 8, 2]), (0, 2, 1, 3))
    return gl.reshape(pairs, [HALF, COLUMNS])


@gluon.jit
def columns_of(x, COLUMNS: gl.constexpr):
    """The columns of what `threads_of` made, without the bits that say whose thread it is.

    These are known when compiled; those bits are twice the thread's number among the four of a row.
    """
    layout: gl.constexpr = x.type.layout
    own = gl.arange(0, COLUMNS // 4, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
    return ((own >> 1) * 8 + (own & 1))[None, None, :]


@gluon.jit
def columns_apart(x):
    """The 16 columns that one thread holds of a tile with 64, each (HALF, 4): four threads share a row."""
    bits = gl.reshape(threads_of(x, HALF), [HALF, 4, 2, 2, 2, 2])
    before, behind = gl.split(gl.permute(bits, (0, 1, 5, 4, 3, 2)))
    return eighths(before) + eighths(behind)


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
def by_thread(x, COLUMNS: gl.constexpr):
    """Sums over the columns that one thread holds of a tile, (HALF, 4): four threads share a row, none talks.

    One sum over all of them, so that products are added as they are made.
    """
    return gl.sum(threads_of(x, COLUMNS), 2)
