"""The key of each row's largest score, given the tile that holds it.

`group_by_tile_kernel`, grid (maps, parts), sorts rows by tile into groups of 64. `hopper_argmax_kernel`, grid
(groups, maps × parts), multiplies each group with its tile again. In: q, k, the tile of each row's maximum.
Out: argmax, and if requested the total weight of the first keys, which the same kernel multiplies too.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.engine.triton.hopper.gluon_compat import barrier
from regard.engine.triton.hopper.ring import LOG2E
from regard.engine.triton.hopper.topk.candidates import in_order, keys_in_order

__all__ = ["GROUP", "MAX_FIRST", "WORDS", "group_by_tile_kernel", "hopper_argmax_kernel"]

# Queries per product, keys per product, and the most first keys per product.
GROUP, HALF, MAX_FIRST = gl.constexpr(64), gl.constexpr(64), gl.constexpr(16)
NO_KEY = gl.constexpr(2**31 - 1)
# Words that describe a group: its tile, where it starts and stops in the list of rows, and one unused word.
WORDS = gl.constexpr(4)


# fmt: off
@triton.jit(do_not_specialize=["q_len", "tiles", "part_rows", "groups"])
def group_by_tile_kernel(
    MAX_TILE, ENDS, COUNT, GROUPS, NUMBERS, ARGMAX, FIRST_WEIGHT, q_len, tiles, part_rows, groups,
    HAS_FIRST: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr,
):
# fmt: on
    """Sort one part of a map's queries by the tile of their largest score, into groups of at most GROUP that
    share a tile.

    Queries of one tile come in any order. Rows with tile -1 see nothing; their results are written here.
    """
    at_map, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row_at, at_part = at_map * q_len, at_map * tl.num_programs(1) + part
    first, stop = part * part_rows, tl.minimum((part + 1) * part_rows, q_len)
    ENDS += at_part * tiles
    GROUPS += at_part * groups * WORDS
    for start in range(0, tiles, TILES):
        tile = start + tl.arange(0, TILES)
        tl.store(ENDS + tile, 0, mask=tile < tiles)
    tl.debug_barrier()
    for start in range(first, stop, ROWS):
        row = start + tl.arange(0, ROWS)
        tile = tl.load(MAX_TILE + row_at + row, mask=row < stop, other=-1)
        tl.atomic_add(ENDS + tile, 1, mask=tile >= 0, sem="relaxed")
    tl.debug_barrier()
    before, count_made = first, 0
    for start in range(0, tiles, TILES):
        tile = start + tl.arange(0, TILES)
        # Volatile: atomic additions bypass this multiprocessor's own cache.
        count = tl.load(ENDS + tile, mask=tile < tiles, other=0, volatile=True)
        begin = before + tl.cumsum(count, 0) - count
        tl.store(ENDS + tile, begin, mask=tile < tiles)
        many = (count + GROUP - 1) // GROUP
        to = GROUPS + (count_made + tl.cumsum(many, 0) - many) * WORDS
        for i in range(tl.max(many, 0)):
            there = i < many
            tl.store(to + i * WORDS, tile, mask=there)
            tl.store(to + i * WORDS + 1, begin + i * GROUP, mask=there)
            tl.store(to + i * WORDS + 2, begin + tl.minimum(count, (i + 1) * GROUP), mask=there)
        before += tl.sum(count, 0)
        count_made += tl.sum(many, 0)
    tl.store(COUNT + at_part, count_made)
    tl.debug_barrier()
    for start in range(first, stop, ROWS):
        row = start + tl.arange(0, ROWS)
        there = row < stop
        tile = tl.load(MAX_TILE + row_at + row, mask=there, other=-1)
        # ENDS holds where each tile's queries start; it moves on with each query that is placed.
        place = tl.atomic_add(ENDS + tile, 1, mask=tile >= 0, sem="relaxed")
        tl.store(NUMBERS + row_at + place, row, mask=tile >= 0)
        dead = there & (tile < 0)
        tl.store(ARGMAX + row_at + row, tl.full([ROWS], -1, tl.int64), mask=dead)
        if HAS_FIRST:
            tl.store(FIRST_WEIGHT + row_at + row, tl.zeros([ROWS], tl.float32), mask=dead)


@gluon.jit
def _keys(K, first, k_n, k_len, ROWS: gl.constexpr, DIM: gl.constexpr):
    """Load a tile of keys into shared memory, with dims permuted to match the gathered queries."""
    dtype: gl.constexpr = K.dtype.element_ty
    shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, DIM], dtype)
    tile = gl.allocate_shared_memory(dtype, [ROWS, DIM], shared)
    tile.store(keys_in_order(K, first, k_n, k_len, ROWS, DIM))
    return tile


@gluon.jit
def _product(q, keys, ROWS: gl.constexpr):
    """Issue the product of gathered queries with ROWS keys."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    zeros = gl.full([GROUP, ROWS], 0.0, gl.float32, layout)
    left = gl.convert_layout(q, gl.DotOperandLayout(0, layout, 2))
    return warpgroup_mma(left, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def _argmax(q, keys, first, low, high):
    """The largest score of each query among HALF keys, and the first key that has it."""
    s = warpgroup_mma_wait(0, deps=[_product(q, keys, HALF)])
    layout: gl.constexpr = s.type.layout
    key = (first + gl.arange(0, HALF, gl.SliceLayout(0, layout)))[None, :]
    s = gl.where((key >= low[:, None]) & (key < high[:, None]), s, float("-inf"))
    top = gl.max(s, 1)
    return top, gl.min(gl.where(s == top[:, None], key, NO_KEY), 1)


# fmt: off
@gluon.jit(do_not_specialize=["q_len", "k_len", "heads", "group", "parts", "groups", "first"])
def hopper_argmax_kernel(
    COUNT, GROUPS, NUMBERS, Q, K, LOW, HIGH, LSE, ARGMAX, FIRST_WEIGHT,
    q_b, q_h, q_n, k_b, k_h, k_n, mask_b, mask_h, scale, q_len, k_len, heads, group, parts, groups, first,
    DIM: gl.constexpr, BLOCK_K: gl.constexpr, HAS_FIRST: gl.constexpr,
):
# fmt: on
    """One program: a group of queries whose largest score is in the same tile. Stores the first key that has
    this score; with HAS_FIRST also the total weight of the first keys, at most MAX_FIRST of them."""
    few: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, MAX_FIRST, 16])
    as_read: gl.constexpr = gl.DotOperandLayout(0, few, 8)
    by_row: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16]))

    at_part = gl.program_id(1)
    GROUPS += (at_part * groups + gl.program_id(0)) * WORDS
    if gl.program_id(0) < gl.load(COUNT + at_part):
        at_map = (at_part // parts).to(gl.int64)
        batch, head = at_map // heads, at_map % heads
        first_key = gl.load(GROUPS) * BLOCK_K
        slot = gl.load(GROUPS + 1) + gl.arange(0, GROUP, by_row)
        there = slot < gl.load(GROUPS + 2)
        query = gl.load(NUMBERS + at_map * q_len + slot, mask=there, other=0)
        mask_at = batch * mask_b + head * mask_h + query
        low, high = gl.load(LOW + mask_at), gl.load(HIGH + mask_at)
        row = gl.convert_layout(query, gl.SliceLayout(1, as_read))[:, None].to(gl.int64) * q_n
        dim = gl.arange(0, DIM, gl.SliceLayout(0, as_read))[None, :]
        q = gl.load(Q + batch * q_b + head * q_h + row + dim)
        K += batch * k_b + head // group * k_h
        left = _keys(K, first_key, k_n, k_len, HALF, DIM)
        right = _keys(K, first_key + HALF, k_n, k_len, HALF, DIM)
        early = left
        if HAS_FIRST:
            early = _keys(K, first_key * 0, k_n, k_len, MAX_FIRST, DIM)
        fence_async_shared()
        barrier()
        q = in_order(q, GROUP, DIM)
        top, found = _argmax(q, left, first_key, low, high)
        other, further = _argmax(q, right, first_key + HALF, low, high)
        found = gl.where(other > top, further, found)
        # If every score is NaN there is no key.
        found = gl.where(found < NO_KEY, found, -1)
        gl.store(ARGMAX + at_map * q_len + query, found.to(gl.int64), mask=there)
        if HAS_FIRST:
            lse = gl.load(LSE + at_map * q_len + query) * LOG2E
            s = warpgroup_mma_wait(0, deps=[_product(q, early, MAX_FIRST)])
            key = gl.arange(0, MAX_FIRST, gl.SliceLayout(0, few))[None, :]
            low = gl.convert_layout(low, gl.SliceLayout(1, few))[:, None]
            high = gl.convert_layout(gl.minimum(high, first), gl.SliceLayout(1, few))[:, None]
            lse = gl.convert_layout(lse, gl.SliceLayout(1, few))[:, None]
            weight = gl.where((key >= low) & (key < high), gl.exp2(s * (scale * LOG2E) - lse), 0.0)
            first_weight = gl.convert_layout(gl.sum(weight, 1), by_row)
            gl.store(FIRST_WEIGHT + at_map * q_len + query, first_weight, mask=there)
