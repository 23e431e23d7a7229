"""The fused forward for Hopper.

One warp drives the copy engine; two warpgroups hold 64 queries each. The product with the last values is
under way while a warpgroup exponentiates, and what one leaves idle the other uses. Weights are relative to a
score of the row that is its largest up to a factor of 256: four threads share a row, and only where one of
them goes beyond that do they look for the largest together, and is what was summed so far scaled down. What
rows tell about themselves is summed per thread, and threads talk once, at the end.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportPossiblyUnboundVariable=false, reportUnboundVariable=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.engine.triton.hopper.sharing import (
    HALF,
    LOG2E,
    barriers,
    by_thread,
    feed,
    ring,
    run_of,
    seen,
    threads_of,
    tile_of,
    turned,
)
from regard.engine.triton.hopper.threads import doubt, hand_out, keep, raised, rescaled

__all__ = ["hopper_forward_kernel"]

LN2 = gl.constexpr(0.6931471805599453)
# A masked score, and the lowest maximum of a row: finite, so that 0 · (a masked score) is 0 and not NaN.
NEVER = gl.constexpr(-1e37)
LOWEST = gl.constexpr(-1e36)


# fmt: off
@gluon.jit
def _load(
    Q, K, V, q_tile, k_ring, v_ring, q_ready, k_ready, k_free, v_ready, v_free,
    batch, head, kv_head, q_first, last, count, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The copy engine's driver: queries once, then keys and values into two rings, last tile first."""
    mbarrier.expect(q_ready, Q.block_type.nbytes)
    tma.async_copy_global_to_shared(Q, [batch, head, q_first, 0], q_ready, q_tile)
    feed(K, V, k_ring, v_ring, k_ready, k_free, v_ready, v_free, batch, kv_head, last, count,
         -1, BLOCK_K, STAGES)  # fmt: skip


@gluon.jit
def _places(nothing, first, q_len, top_rows, BLOCK_K: gl.constexpr, PARTS: gl.constexpr):
    """Whose largest scores a thread keeps, of its two rows, eight apart, and of one or two parts of a tile.

    Room for them, the thread's number among the four of a row, the place of its own, and whether it has any.
    """
    tops = gl.max(gl.reshape(threads_of(nothing, BLOCK_K), [HALF, 4, PARTS, BLOCK_K // PARTS // 4]), 3)
    layout: gl.constexpr = tops.type.layout
    row = gl.arange(0, HALF, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    neighbour = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    row = first + (row - (row & 8)) + (neighbour & 1) * 8
    neighbour += gl.full([HALF, 4, PARTS], 0, gl.int32, layout)
    own = ((row < q_len) & ((neighbour >> 1) < PARTS)).to(gl.int32)
    return tops, neighbour, (neighbour >> 1) * top_rows + row, own


# fmt: off
@gluon.jit
def _softmax(
    s, j, base, total, energy, distance, peak, best, best_tile, tops, more, neighbour, c,
    BLOCK_K: gl.constexpr, CLASSES: gl.constexpr, ENTROPIES: gl.constexpr,
    DISTANCES: gl.constexpr, PEAKS: gl.constexpr, GRAIN: gl.constexpr,
):
# fmt: on
    """Weights of one tile, relative to a score not far below the row's largest, and what rows add up."""
    scores = threads_of(s, BLOCK_K)
    rows: gl.constexpr = total.type.layout
    if CLASSES > 0:
        # Every CLASSES-th key is of one class. Tiles come last first: on a tie the earlier one wins.
        here = gl.max(gl.reshape(s, [HALF, BLOCK_K // CLASSES, CLASSES]), 1)
        better = here >= best
        best = gl.where(better, here, best)
        best_tile = gl.where(better, j, best_tile)
        highest = gl.convert_layout(gl.max(threads_of(here, CLASSES), 2), rows)
    elif GRAIN > 0:
        parts: gl.constexpr = BLOCK_K // GRAIN
        here = gl.max(gl.reshape(scores, [HALF, 4, parts, GRAIN // 4]), 3)
        highest = gl.convert_layout(gl.max(here, 2), rows)
        tops, more = hand_out(here, more, neighbour, parts)
    else:
        highest = gl.max(scores, 2)
    if PEAKS and CLASSES == 0:
        peak = gl.maximum(peak, highest)
    above = raised(highest * c, base)
    x = scores * c - above[:, :, None]
    p = gl.exp2(x)
    fall = base - above
    left = gl.exp2(fall)
    mass = gl.sum(p, 2)
    if ENTROPIES:
        energy = (energy + fall * total) * left + gl.sum(p * x, 2)
    if DISTANCES:
        # A column's number without the bits that say whose thread it is: known when compiled. The rest is
        # the same for all of a thread's columns, and added at the end.
        own = gl.arange(0, BLOCK_K // 4, gl.SliceLayout(0, gl.SliceLayout(1, x.type.layout)))
        step = ((own >> 1) * 8 + (own & 1)).to(gl.float32)[None, None, :]
        distance = distance * left + (mass * (j * BLOCK_K).to(gl.float32) + gl.sum(p * step, 2))
    total = total * left + mass
    return tile_of(p, BLOCK_K), left, above, total, energy, distance, peak, best, best_tile, tops, more


# fmt: off
@gluon.jit
def _attend(
    q_tile, k_ring, v_ring, q_ready, k_ready, k_free, v_ready, v_free,
    OUT, LSE, ENTROPY, DISTANCE, PEAK, PEAK_TILE, TILE_TOPS, DIRTY, SINK, LOW, HIGH,
    q_first, last, count, full_first, full_stop, q_len, offset, top_rows, c, half: gl.constexpr,
    BLOCK_K: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr, CLASSES: gl.constexpr,
    HAS_SINK: gl.constexpr, ENTROPIES: gl.constexpr, DISTANCES: gl.constexpr, PEAKS: gl.constexpr,
    GRAIN: gl.constexpr,
):
# fmt: on
    """One warpgroup: its half of the queries against every tile of keys. Pointers are at this head's rows."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    dtype: gl.constexpr = k_ring.dtype

    q_row = q_first + half * HALF + gl.arange(0, HALF, rows)
    there = q_row < q_len
    low = gl.load(LOW + q_row, mask=there, other=0)
    high = gl.load(HIGH + q_row, mask=there, other=0)
    limit = NEVER / c

    nothing = gl.full([HALF, BLOCK_K], 0.0, gl.float32, s_layout)
    total = by_thread(nothing, BLOCK_K)
    energy, distance, base = total, total, total + LOWEST
    peak = total + float("-inf")
    # Of these, those that nobody asks for stay what they are.
    best, best_tile, tops, more, neighbour = total, total, total, total, total
    parts: gl.constexpr = BLOCK_K // GRAIN if GRAIN > 0 else 1
    if GRAIN > 0:
        tops, neighbour, place, own = _places(
            nothing, q_first + half * HALF, q_len, top_rows, BLOCK_K, parts)  # fmt: skip
        more = tops
    if CLASSES > 0:
        best = gl.max(gl.reshape(nothing, [HALF, BLOCK_K // CLASSES, CLASSES]), 1) + float("-inf")
        best_tile = gl.full([HALF, CLASSES], -1, gl.int32, best.type.layout)
    acc = gl.full([HALF, DIM], 0.0, gl.float32, o_layout)

    q = q_tile.slice(half * HALF, HALF)
    mbarrier.wait(q_ready, 0)
    mbarrier.wait(k_ready.index(0), 0)
    s = turned(q, k_ring, 0, nothing)
    s = warpgroup_mma_wait(0, deps=[s])
    mbarrier.arrive(k_free.index(0))
    s = seen(s, last, low, high, full_first, full_stop, limit, BLOCK_K, s_layout)
    p, left, base, total, energy, distance, peak, best, best_tile, tops, more = _softmax(
        s, last, base, total, energy, distance, peak, best, best_tile, tops, more, neighbour, c,
        BLOCK_K, CLASSES, ENTROPIES, DISTANCES, PEAKS, GRAIN)  # fmt: skip
    weights = gl.convert_layout(p.to(dtype), p_layout)
    for i in range(1, count):
        slot = i % STAGES
        before = (i - 1) % STAGES
        phase_before = ((i - 1) // STAGES) & 1
        mbarrier.wait(k_ready.index(slot), (i // STAGES) & 1)
        s = turned(q, k_ring, slot, nothing)
        mbarrier.wait(v_ready.index(before), phase_before)
        mixed = warpgroup_mma(weights, v_ring.index(before), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])
        mbarrier.arrive(k_free.index(slot))
        s = seen(s, last - i, low, high, full_first, full_stop, limit, BLOCK_K, s_layout)
        if GRAIN > 0:
            to = TILE_TOPS + ((last - i + 1) * parts).to(gl.int64) * top_rows
            keep(tops, more, place, own, to, parts)
        p, left, base, total, energy, distance, peak, best, best_tile, tops, more = _softmax(
            s, last - i, base, total, energy, distance, peak, best, best_tile, tops, more, neighbour, c,
            BLOCK_K, CLASSES, ENTROPIES, DISTANCES, PEAKS, GRAIN)  # fmt: skip
        doubt(total, energy, distance, DIRTY)
        # There is nothing left to wait for here. But the assembler moves the wait below up to the top of its
        # block, before the exponentials that it should overlap; and this branch is where a block ends.
        mbarrier.wait(v_ready.index(before), phase_before)
        acc, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
        mbarrier.arrive(v_free.index(before))
        acc = rescaled(acc, left, DIM, o_layout)
        weights = gl.convert_layout(p.to(dtype), p_layout)
    slot = (count - 1) % STAGES
    mbarrier.wait(v_ready.index(slot), ((count - 1) // STAGES) & 1)
    mixed = warpgroup_mma(weights, v_ring.index(slot), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[mixed])

    if GRAIN > 0:
        keep(tops, more, place, own, TILE_TOPS + ((last - count + 1) * parts).to(gl.int64) * top_rows, parts)

    # A dead row has total 0: output 0, lse -inf. One that is no number stays none.
    top = gl.convert_layout(gl.max(base, 1), rows)
    whole = gl.convert_layout(gl.sum(total, 1), rows)
    alive = whole != 0
    sum_log = gl.log2(gl.where(alive, whole, 1.0))
    share = gl.where(alive, 1 / gl.where(alive, whole, 1.0), 0.0)
    lse = gl.where(alive, top + sum_log, float("-inf"))
    kept_log = gl.full([HALF], 0.0, gl.float32, rows)
    if HAS_SINK:
        sink = gl.load(SINK).to(gl.float32) * LOG2E
        highest = gl.maximum(lse, sink)
        safe = gl.where(highest == float("-inf"), 0.0, highest)
        both = safe + gl.log2(gl.exp2(lse - safe) + gl.exp2(sink - safe))
        kept_log = gl.where(alive, lse - both, 0.0)
        lse = both
    kept = gl.exp2(kept_log)
    o_row = q_first + half * HALF + gl.arange(0, HALF, o_rows)
    o_col = gl.arange(0, DIM, gl.SliceLayout(0, o_layout))
    out = acc * gl.convert_layout(share * kept, o_rows)[:, None]
    o_there = o_row[:, None] < q_len
    gl.store(OUT + o_row[:, None].to(gl.int64) * DIM + o_col[None, :], out.to(dtype), mask=o_there)
    wrong = gl.max(gl.max((o_there & (out != out)).to(gl.int32), 1), 0)
    gl.store(DIRTY, wrong, mask=wrong > 0)
    gl.store(LSE + q_row, lse * LN2, mask=there)
    if ENTROPIES:
        entropy = sum_log - gl.convert_layout(gl.sum(energy, 1), rows) * share - kept_log
        entropy = kept * entropy * LN2
        # Rounding may leave a little less than none; what is no number stays none.
        gl.store(ENTROPY + q_row, gl.where(entropy < 0, 0.0, entropy), mask=there)
    if DISTANCES:
        mine = (gl.arange(0, 4, gl.SliceLayout(0, total.type.layout)) * 2).to(gl.float32)
        where = gl.convert_layout(gl.sum(distance + total * mine[None, :], 1), rows) * share
        away = (q_row + offset).to(gl.float32) - where
        gl.store(DISTANCE + q_row, gl.where(alive, kept * away, 0.0), mask=there)
    if PEAKS:
        highest = gl.convert_layout(gl.max(best if CLASSES > 0 else peak, 1), rows) * c
        gl.store(PEAK + q_row, gl.where(alive, highest * LN2, float("-inf")), mask=there)
    if CLASSES > 0:
        classes: gl.constexpr = best.type.layout
        b_row = q_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, classes))[:, None]
        place = b_row.to(gl.int64) * CLASSES + gl.arange(0, CLASSES, gl.SliceLayout(0, classes))[None, :]
        # A class that is beaten has no tile: only where classes tie is there more than one left to search.
        won = (best == gl.max(best, 1)[:, None]) & (best > limit * 0.5)
        gl.store(PEAK_TILE + place, gl.where(won, best_tile, -1), mask=b_row < q_len)


# fmt: off
@gluon.jit(do_not_specialize=[
    "q_len", "offset", "heads", "group", "q_blocks", "plane_stride", "tops_size", "top_rows", "top_first"])
def hopper_forward_kernel(
    Q, K, V, OUT, LSE, ENTROPY, DISTANCE, PEAK, PEAK_TILE, TILE_TOPS, DIRTY, SINK, LOW, HIGH, BLOCKS, ORDER,
    mask_b, mask_h, scale, q_len, offset, heads, group, q_blocks, plane_stride, tops_size, top_rows,
    top_first,
    BLOCK_K: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr, CLASSES: gl.constexpr,
    HAS_SINK: gl.constexpr, ENTROPIES: gl.constexpr, DISTANCES: gl.constexpr, PEAKS: gl.constexpr,
    GRAIN: gl.constexpr,
):
# fmt: on
    """One program: 128 queries of one head, over the run of tiles that they see."""
    head, batch = gl.program_id(1), gl.program_id(2)
    block, first, stop, full_first, full_stop = run_of(ORDER, BLOCKS, batch * plane_stride)
    q_boxes, q_tiles = ring(Q, 1, 2 * HALF, DIM)
    k_boxes, k_ring = ring(K, STAGES, BLOCK_K, DIM)
    v_boxes, v_ring = ring(V, STAGES, BLOCK_K, DIM)
    q_box, q_tile, q_ready = q_boxes.index(0), q_tiles.index(0), barriers(1, 1).index(0)
    k_ready, k_free = barriers(STAGES, 1), barriers(STAGES, 2)
    v_ready, v_free = barriers(STAGES, 1), barriers(STAGES, 2)
    fence_async_shared()

    map_at = (batch * heads + head).to(gl.int64)
    row_at = map_at * q_len
    mask_at = batch * mask_b + head * mask_h
    q_first = block * (2 * HALF)
    c = scale * LOG2E
    OUT += row_at * DIM
    LSE += row_at
    ENTROPY += row_at
    DISTANCE += row_at
    PEAK += row_at
    PEAK_TILE += row_at * CLASSES
    TILE_TOPS += map_at * tops_size - top_first
    DIRTY += map_at * q_blocks + block
    SINK += head
    LOW += mask_at
    HIGH += mask_at
    gl.warp_specialize(
        [
            (_attend, (
                q_tile, k_ring, v_ring, q_ready, k_ready, k_free, v_ready, v_free,
                OUT, LSE, ENTROPY, DISTANCE, PEAK, PEAK_TILE, TILE_TOPS, DIRTY, SINK, LOW, HIGH,
                q_first, stop - 1, stop - first, full_first, full_stop, q_len, offset, top_rows, c, 0,
                BLOCK_K, DIM, STAGES, CLASSES, HAS_SINK, ENTROPIES, DISTANCES, PEAKS, GRAIN)),
            (_attend, (
                q_tile, k_ring, v_ring, q_ready, k_ready, k_free, v_ready, v_free,
                OUT, LSE, ENTROPY, DISTANCE, PEAK, PEAK_TILE, TILE_TOPS, DIRTY, SINK, LOW, HIGH,
                q_first, stop - 1, stop - first, full_first, full_stop, q_len, offset, top_rows, c, 1,
                BLOCK_K, DIM, STAGES, CLASSES, HAS_SINK, ENTROPIES, DISTANCES, PEAKS, GRAIN)),
            (_load, (
                Q, K, V, q_box, k_boxes, v_boxes, q_ready, k_ready, k_free, v_ready, v_free,
                batch, head, head // group, q_first, stop - 1, stop - first, BLOCK_K, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
