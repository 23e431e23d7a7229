"""The fused forward for Hopper.

Grid: (blocks of 128 queries, heads, batch), or heads first (`head_order.py`). One warp drives TMA; two
warpgroups hold 64 queries each. In: q, k, v as TMA descriptors, tables of tiles. Out: out, lse, row
statistics, tile maxima.

`P·V` of one tile overlaps the exponentials of the next. Exponents are relative to a base from earlier tiles.
The base is within a fixed factor of the row's maximum (`slack` in `rescale_ptx.py`), so the exponentials of a
tile need not wait for its maximum. If a weight exceeds that factor, the four threads of the row find the
row's maximum and rescale its weights and sums (`rescale.py`). Each thread sums its own part of the row
statistics; the parts are reduced once, at the end.
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
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.engine.triton.hopper.forward.rescale import rescale_if_needed, rescale_output
from regard.engine.triton.hopper.gluon_compat import async_load
from regard.engine.triton.hopper.ring import (
    LOG2E,
    barriers,
    block_and_head,
    dot_transposed,
    load_tiles,
    pad_code,
    release,
    ring,
    run_of,
)
from regard.engine.triton.hopper.thread_columns import (
    HALF,
    columns_of,
    halves_of,
    join_threads,
    max_in_thread,
    split_by_thread,
    sum_by_thread,
    sum_in_thread,
    unstack,
)
from regard.engine.triton.hopper.thread_ops import (
    first_base,
    flag_nan,
    logarithm,
    offer_maxima,
    select_equal,
    store_maxima,
)
from regard.engine.triton.hopper.thread_ops_ptx import LOWEST

__all__ = ["MAX_FIRST_KEYS", "hopper_forward_kernel"]

LN2 = gl.constexpr(0.6931471805599453)
# A masked score: finite, so that 0 · (a masked score) is 0 and not NaN; and below the initial base.
MASKED = gl.constexpr(-1e37)
# Rows past the last one see every key. If they saw none, they would never get a base.
ALL_KEYS = gl.constexpr(1 << 30)
# The most leading keys whose weight a program can sum: the width of the narrowest matrix product.
MAX_FIRST_KEYS = gl.constexpr(8)
# The base of a row exceeds its largest score by a millionth of that score. For bases beyond this (scores are
# in units of log 2), weights would become too small, and the portable kernel computes the block.
FARTHEST = gl.constexpr(2.0**23)
# Larger than any tile or key number.
NO_KEY = gl.constexpr(1 << 30)


# fmt: off
@gluon.jit
def _load(
    Q, K, V, q_tile, k_ring, v_ring, q_ready, k_ready, v_ready,
    batch, head, kv_head, q_first, last, count, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
):
# fmt: on
    """The loading warp: load the queries once, then keys and values into two rings, last tile first."""
    mbarrier.expect(q_ready, Q.block_type.nbytes)
    async_load(Q, [batch, head, q_first, 0], q_ready, q_tile)
    load_tiles(K, V, k_ring, v_ring, k_ready, v_ready, batch, kv_head, last, count, -1, BLOCK_K, STAGES)


@gluon.jit
def _maxima_places(zeros, first, q_len, maxima_rows, BLOCK_K: gl.constexpr, PARTS: gl.constexpr):
    """Assign each thread the tile maximum that it stores. A thread holds two rows, eight apart, and a tile
    has one or two parts with a maximum each.

    Returns a buffer for the maxima, the thread's number among the four of its row, and the offset at which it
    stores, or -1.
    """
    tile_maxima = gl.max(gl.reshape(split_by_thread(zeros, BLOCK_K), [HALF, 4, PARTS,
    BLOCK_K // PARTS // 4]), 3)
    layout: gl.constexpr = tile_maxima.type.layout
    row = gl.arange(0, HALF, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    neighbour = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    row = first + (row - (row & 8)) + (neighbour & 1) * 8
    neighbour += gl.full([HALF, 4, PARTS], 0, gl.int32, layout)
    own = (row < q_len) & ((neighbour >> 1) < PARTS)
    return tile_maxima, neighbour, gl.where(own, (neighbour >> 1) * maxima_rows + row, -1)


# fmt: off
@gluon.jit
def _masked(scores, j, low, high, thread, other, BLOCK_K: gl.constexpr, RELATIVE: gl.constexpr):
# fmt: on
    """A thread's scores of tile j, with `other` where a query may not see a key."""
    column = columns_of(scores, BLOCK_K)
    if RELATIVE:
        # Compare with compile-time column numbers.
        first = j * BLOCK_K + thread * 2
        inside = (column >= (low - first)[:, :, None]) & (column < (high - first)[:, :, None])
    else:
        # The same result. If only entropies are requested, the compiler makes a better loop over the full
        # tiles (which need no mask) with this form.
        key = j * BLOCK_K + (column + thread[:, :, None] * 2)
        inside = (key >= low[:, :, None]) & (key < high[:, :, None])
    return gl.where(inside, scores, other)


@gluon.jit
def _weight_sums(p, layout: gl.constexpr):
    """The sum of a thread's weights, and the sum of weight times distance to the end of the tile.

    A thread's columns are pairs, eight apart; the caller adds the offset that all columns of the thread
    share. A running sum over the pairs is added up again at each pair, so each weight counts once for every
    pair from its own to the last: that is its distance in units of eight columns. This needs no
    multiplications: with multiply-adds the assembler delays the additions until all exponentials are
    computed, which takes 5 % longer.
    """
    weights = unstack(p, layout)
    left, right = weights[0], weights[1]
    walked_left, walked_right = left, right
    for i in gl.static_range(2, p.shape[2], 2):
        left += weights[i]
        walked_left += left
        right += weights[i + 1]
        walked_right += right
    # The second column of a pair is nearer by one.
    return left + right, 8 * (walked_left + walked_right) - right


@gluon.jit
def _max_weights(p, base, tile_maxima, BLOCK_K: gl.constexpr, GRAIN: gl.constexpr):
    """A thread's largest weight of each row, and the maxima of the tile's parts.

    Weights are not negative, so their bits sort like the weights, and integers have a three-input maximum.
    """
    rows: gl.constexpr = base.type.layout
    bits = p.to(gl.int32, bitcast=True)
    if GRAIN == BLOCK_K // 2:
        before, behind = halves_of(bits)
        one, other = max_in_thread(before, rows), max_in_thread(behind, rows)
        most = gl.maximum(one, other)
        of_parts = gl.convert_layout(gl.join(one, other), tile_maxima.type.layout)
    else:
        most = max_in_thread(bits, rows)
        of_parts = gl.convert_layout(most[:, :, None], tile_maxima.type.layout) if GRAIN > 0 else most
    if GRAIN > 0:
        since = gl.convert_layout(base, gl.SliceLayout(2, tile_maxima.type.layout))[:, :, None]
        tile_maxima = logarithm(of_parts.to(gl.float32, bitcast=True)) + since
    return most.to(gl.float32, bitcast=True), tile_maxima


@gluon.jit
def _first_argmax(x, level, layout: gl.constexpr):
    """The first of a thread's columns whose value equals `level`, for each row, without the bits of the
    column number that depend on the thread (`columns_of`)."""
    cells = unstack(x, layout)
    found = gl.full(level.shape, 0, gl.int32, layout)
    for i in gl.static_range(x.shape[2] - 1, -1, -1):
        found = select_equal(cells[i], level, i // 2 * 8 + i % 2, found)
    return found


# fmt: off
@gluon.jit
def _softmax(
    scores, j, base, total, energy, distance, max_score, argmax, tile_maxima, c,
    BLOCK_K: gl.constexpr, ENTROPIES: gl.constexpr, DISTANCES: gl.constexpr, MAX_SCORES: gl.constexpr,
    FIND_KEY: gl.constexpr, GRAIN: gl.constexpr,
):
# fmt: on
    """The weights of one tile, the updated row sums, and a thread's largest scores."""
    rows: gl.constexpr = base.type.layout
    # Both forms are one instruction. `_first_argmax` compares x with `most`, so both must be rounded alike.
    x = gl.fma(scores, c, -base[:, :, None]) if FIND_KEY else scores * c - base[:, :, None]
    p = gl.exp2(x)
    if MAX_SCORES:
        highest = max_in_thread(scores, rows)
        most = gl.fma(highest, c, -base) if FIND_KEY else highest * c - base
        at = j
        if FIND_KEY:
            at = j * BLOCK_K + _first_argmax(x, most, rows)
        # Tiles are visited last first, so on a tie the earlier tile wins.
        argmax = gl.where(highest >= max_score, at, argmax)
        max_score = gl.maximum(max_score, highest)
    else:
        most, tile_maxima = _max_weights(p, base, tile_maxima, BLOCK_K, GRAIN)
    if ENTROPIES:
        energy = energy + sum_in_thread(p * x, rows)
    if DISTANCES:
        weight_sum, before = _weight_sums(p, rows)
        distance = distance + (weight_sum * ((j + 1) * BLOCK_K).to(gl.float32) - before)
    else:
        weight_sum = sum_in_thread(p, rows)
    return p, most, total + weight_sum, energy, distance, max_score, argmax, tile_maxima


# fmt: off
@gluon.jit
def _attend(
    q_tile, k_ring, v_ring, q_ready, k_ready, v_ready, Q_ROWS, K_ROWS, q_n, k_n,
    OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA, DIRTY, SINK, LOW, HIGH,
    row_at, q_first, last, count, full_first, full_stop, q_len, offset, maxima_rows, c, first_keys,
    half: gl.constexpr, BLOCK_K: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
    HAS_SINK: gl.constexpr, ENTROPIES: gl.constexpr, DISTANCES: gl.constexpr, MAX_SCORES: gl.constexpr,
    FIND_KEY: gl.constexpr, FIRST_KEYS: gl.constexpr, GRAIN: gl.constexpr,
):
# fmt: on
    """One warpgroup: attention of its half of the queries over every tile of keys.

    Keys and values come from rings in shared memory. The pointers point at this head's rows; `last` is the
    last tile of the run, `count` the number of tiles, `half` the number of the warpgroup.
    """
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    dtype: gl.constexpr = k_ring.dtype

    gl.static_assert(GRAIN == 0 or not MAX_SCORES)
    relative: gl.constexpr = DISTANCES or MAX_SCORES or GRAIN > 0
    whole_output: gl.constexpr = DIM == BLOCK_K
    # Variants whose two copies of the loop (one per warpgroup) would compete for the instruction cache.
    crowded: gl.constexpr = ENTROPIES and DISTANCES and (whole_output or FIND_KEY)
    limit = MASKED / c
    # Slightly more than c: with c itself the compiler would compute scores * c once for both uses, and each
    # weight would cost one more addition.
    about = c * 1.000001

    zeros = gl.full([HALF, BLOCK_K], 0.0, gl.float32, s_layout)
    total = sum_by_thread(zeros, BLOCK_K)
    threads: gl.constexpr = total.type.layout
    row = q_first + half * HALF + gl.arange(0, HALF, gl.SliceLayout(1, threads))
    from_key = gl.load(LOW + row, mask=row < q_len, other=0)
    to_key = gl.load(HIGH + row, mask=row < q_len, other=ALL_KEYS)
    low, high = from_key[:, None], to_key[:, None]
    thread = gl.arange(0, 4, gl.SliceLayout(0, threads))[None, :]
    # The addresses of a thread's first query and of its first key of tile 0: `rescale_if_needed` reads them
    # if it must compute scores again. Rows past the end are not stored, so any query will do. Uniform
    # addresses, and the scale itself, would take registers that the loop needs for descriptors.
    q_at = (Q_ROWS + gl.minimum(row, q_len - 1).to(gl.int64)[:, None] * q_n + thread * 8).to(gl.int64)
    k_at = (K_ROWS + ((row & 7)[:, None] * k_n + thread * 8)).to(gl.int64)
    energy, distance, base = total, total, total + LOWEST
    max_score = total + float("-inf")
    # The variables of statistics that are not requested stay unused.
    argmax, tile_maxima, neighbour = total, total, total
    parts: gl.constexpr = BLOCK_K // GRAIN if GRAIN > 0 else 1
    if GRAIN > 0:
        tile_maxima, neighbour, place = _maxima_places(
            zeros, q_first + half * HALF, q_len, maxima_rows, BLOCK_K, parts)  # fmt: skip
        maxima_at = TILE_MAXIMA + (last * parts).to(gl.int64) * maxima_rows
    if MAX_SCORES:
        argmax = gl.full([HALF, 4], NO_KEY, gl.int32, threads)
    acc = gl.full([HALF, DIM], 0.0, gl.float32, o_layout)

    q = q_tile.slice(half * HALF, HALF)
    mbarrier.wait(q_ready, 0)
    mbarrier.wait(k_ready.index(0), 0)
    s = dot_transposed(q, k_ring, 0, zeros)
    s = warpgroup_mma_wait(0, deps=[s])
    release(0, 2)
    scores = _masked(split_by_thread(s, BLOCK_K), last, low, high, thread, limit, BLOCK_K, relative)
    base = first_base(gl.max(scores * about, 2), base)
    p, most, total, energy, distance, max_score, argmax, tile_maxima = _softmax(
        scores, last, base, total, energy, distance, max_score, argmax, tile_maxima, c,
        BLOCK_K, ENTROPIES, DISTANCES, MAX_SCORES, FIND_KEY, GRAIN)  # fmt: skip
    weights = gl.convert_layout(join_threads(p, BLOCK_K).to(dtype), p_layout)
    for i in range(1, count):
        slot = i % STAGES
        before = (i - 1) % STAGES
        if GRAIN > 0:
            # The maxima of the previous tile. Shuffles are slow while products run, and the next ones are not
            # issued yet.
            offered = offer_maxima(tile_maxima, neighbour, parts)
        mbarrier.wait(k_ready.index(slot), (i // STAGES) & 1)
        s = dot_transposed(q, k_ring, slot, zeros)
        j = last - i
        mbarrier.wait(v_ready.index(before), ((i - 1) // STAGES) & 1)
        mixed = warpgroup_mma(weights, v_ring.index(before), acc, is_async=True)
        if GRAIN > 0:
            store_maxima(offered, place, maxima_at, parts)
            maxima_at -= (parts * maxima_rows).to(gl.int64)
        s = warpgroup_mma_wait(1, deps=[s])
        release(slot, 2)
        scores = split_by_thread(s, BLOCK_K)
        if (j < full_first) | (j >= full_stop - 1):
            scores = _masked(scores, j, low, high, thread, limit, BLOCK_K, relative)
            base = first_base(gl.max(scores * about, 2), base)
        p, most, total, energy, distance, max_score, argmax, tile_maxima = _softmax(
            scores, j, base, total, energy, distance, max_score, argmax, tile_maxima, c,
            BLOCK_K, ENTROPIES, DISTANCES, MAX_SCORES, FIND_KEY, GRAIN)  # fmt: skip
        flag_nan(total, energy if ENTROPIES else most, distance, DIRTY)
        acc, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
        again = (q_at[:, :, None], k_at[:, :, None], k_n, j, low[:, :, None], high[:, :, None], c * 0.5)
        p, out, base, total, energy, distance, tile_maxima = rescale_if_needed(
            p, split_by_thread(acc, DIM), most, base, total, energy, distance, tile_maxima, again,
            ENTROPIES, DISTANCES, whole_output, MAX_SCORES, FIND_KEY, BLOCK_K // GRAIN if GRAIN > 0 else 0,
            DIM, dtype)  # fmt: skip
        if whole_output:
            acc = gl.convert_layout(join_threads(out, DIM), o_layout)
        else:
            acc = rescale_output(acc, out, DIM, o_layout)
        release(STAGES + before, 2)
        weights = gl.convert_layout(join_threads(p, BLOCK_K).to(dtype), p_layout)
    if crowded:
        # Each warpgroup runs a copy of this loop. These no-ops change the distance between the copies, which
        # would otherwise be 64 KiB (see `pad_code`).
        pad_code(384)
    slot = (count - 1) % STAGES
    mbarrier.wait(v_ready.index(slot), ((count - 1) // STAGES) & 1)
    mixed = warpgroup_mma(weights, v_ring.index(slot), acc, is_async=True)
    if FIRST_KEYS:
        # The last tile holds the first keys, if any row sees them. Keys past the end are zeros.
        few: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, MAX_FIRST_KEYS, 16])
        s = gl.full([HALF, MAX_FIRST_KEYS], 0.0, gl.float32, few)
        k_few = k_ring.index(slot).slice(0, MAX_FIRST_KEYS).permute((1, 0))
        s = warpgroup_mma(q, k_few, s, use_acc=False, is_async=True)
        acc, s = warpgroup_mma_wait(0, deps=[mixed, s])
    else:
        acc = warpgroup_mma_wait(0, deps=[mixed])

    if GRAIN > 0:
        store_maxima(offer_maxima(tile_maxima, neighbour, parts), place, maxima_at, parts)

    # Pointers to this head's rows; computed before the loop they would occupy registers in it.
    OUT += row_at * DIM
    LSE += row_at
    ENTROPY += row_at
    DISTANCE += row_at
    MAX_SCORE += row_at
    ARGMAX += row_at
    q_row = q_first + half * HALF + gl.arange(0, HALF, rows)
    there = q_row < q_len
    # A dead row has total 0: output 0, lse -inf. NaN stays NaN.
    top = gl.convert_layout(gl.max(base, 1), rows)
    whole = gl.convert_layout(gl.sum(total, 1), rows)
    alive = whole != 0
    sum_log = gl.log2(gl.where(alive, whole, 1.0))
    share = gl.where(alive, 1 / gl.where(alive, whole, 1.0), 0.0)
    spread = gl.convert_layout(gl.sum(energy, 1), rows)
    mine = (thread * 2).to(gl.float32)
    where = gl.convert_layout(gl.sum(distance + total * mine, 1), rows)
    # If sums are infinite or NaN the output is NaN too, and the block is recomputed.
    share += (whole - whole) + (spread - spread) + (where - where)
    share = gl.where((top > LOWEST) & (gl.abs(top) > FARTHEST), float("nan"), share)
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
        entropy = kept * (sum_log - spread * share - kept_log) * LN2
        # Rounding may give a slightly negative entropy: clamp it to 0. NaN stays NaN.
        gl.store(ENTROPY + q_row, gl.where(entropy < 0, 0.0, entropy), mask=there)
    if DISTANCES:
        away = (q_row + offset).to(gl.float32) - where * share
        gl.store(DISTANCE + q_row, gl.where(alive, kept * away, 0.0), mask=there)
    if MAX_SCORES:
        highest = gl.convert_layout(gl.max(max_score, 1), rows) * c
        gl.store(MAX_SCORE + q_row, gl.where(alive, highest * LN2, float("-inf")), mask=there)
        won = (max_score == gl.max(max_score, 1)[:, None]) & (max_score > limit * 0.5)
        if FIND_KEY:
            argmax += thread * 2
        found = gl.convert_layout(gl.min(gl.where(won, argmax, NO_KEY), 1), rows)
        found = gl.where(found < NO_KEY, found, -1)
        gl.store(ARGMAX + q_row, found.to(ARGMAX.dtype.element_ty), mask=there)
    if FIRST_KEYS:
        few_rows: gl.constexpr = gl.SliceLayout(1, few)
        key = (last - count + 1) * BLOCK_K + gl.arange(0, MAX_FIRST_KEYS, gl.SliceLayout(0, few))[None, :]
        low = gl.convert_layout(from_key, few_rows)[:, None]
        high = gl.convert_layout(gl.minimum(to_key, first_keys), few_rows)[:, None]
        # A dead row sees none of these keys.
        x = s * c - gl.convert_layout(gl.where(lse > float("-inf"), lse, 0.0), few_rows)[:, None]
        x = gl.where((key >= low) & (key < high), x, float("-inf"))
        gl.store(FIRST_WEIGHT + row_at + q_row, gl.convert_layout(gl.sum(gl.exp2(x), 1), rows), mask=there)


# fmt: off
@gluon.jit(do_not_specialize=[
    "q_len", "offset", "heads", "group", "q_blocks", "plane_stride", "maxima_size", "maxima_rows",
    "maxima_first", "across", "first_keys", "q_b", "q_h", "q_n", "k_b", "k_h", "k_n"])
def hopper_forward_kernel(
    Q, K, V, Q_ROWS, K_ROWS, OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA, DIRTY,
    SINK, LOW, HIGH, BLOCKS, ORDER, q_b, q_h, q_n, k_b, k_h, k_n, mask_b, mask_h, scale, q_len, offset,
    heads, group, q_blocks, plane_stride, maxima_size, maxima_rows, maxima_first, across, first_keys,
    BLOCK_K: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr, HAS_SINK: gl.constexpr,
    ENTROPIES: gl.constexpr, DISTANCES: gl.constexpr, MAX_SCORES: gl.constexpr, FIND_KEY: gl.constexpr,
    FIRST_KEYS: gl.constexpr, GRAIN: gl.constexpr,
):
# fmt: on
    """One program: 128 queries of one head, over their run of tiles.

    Q, K, V: TMA descriptors; Q_ROWS, K_ROWS: the same queries and keys as pointers.
    OUT: (batch, heads, q_len, DIM). LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT: (batch, heads,
    q_len). TILE_MAXIMA: (maps, tiles × parts, rows of the band). DIRTY: (maps, blocks) flags.
    LOW, HIGH: each row's interval of keys. BLOCKS, ORDER: runs of tiles, see `Schedule.blocks`.

    With MAX_SCORES, ARGMAX gets the tile of each row's largest score; with FIND_KEY it gets the key, which
    costs two more instructions per cell.
    """
    number, head = block_and_head(across)
    batch = gl.program_id(2)
    block, first, stop, full_first, full_stop = run_of(ORDER, BLOCKS, batch * plane_stride, number)
    q_tma, q_tiles = ring(Q, 1, 2 * HALF, DIM)
    k_tma, k_ring = ring(K, STAGES, BLOCK_K, DIM)
    v_tma, v_ring = ring(V, STAGES, BLOCK_K, DIM)
    q_tma_tile, q_tile, q_ready = q_tma.index(0), q_tiles.index(0), barriers(1, 1).index(0)
    k_ready, v_ready = barriers(STAGES, 1), barriers(STAGES, 1)
    fence_async_shared()

    map_at = (batch * heads + head).to(gl.int64)
    row_at = map_at * q_len
    mask_at = batch * mask_b + head * mask_h
    q_first = block * (2 * HALF)
    c = scale * LOG2E
    Q_ROWS += batch.to(gl.int64) * q_b + head.to(gl.int64) * q_h
    K_ROWS += batch.to(gl.int64) * k_b + (head // group).to(gl.int64) * k_h
    TILE_MAXIMA += map_at * maxima_size - maxima_first
    DIRTY += map_at * q_blocks + block
    SINK += head
    LOW += mask_at
    HIGH += mask_at
    gl.warp_specialize(
        [
            (_attend, (
                q_tile, k_ring, v_ring, q_ready, k_ready, v_ready, Q_ROWS, K_ROWS, q_n, k_n,
                OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA, DIRTY, SINK,
                LOW, HIGH,
                row_at, q_first, stop - 1, stop - first, full_first, full_stop, q_len, offset, maxima_rows, c,
                first_keys, 0, BLOCK_K, DIM, STAGES, HAS_SINK, ENTROPIES, DISTANCES, MAX_SCORES, FIND_KEY,
                FIRST_KEYS, GRAIN)),
            (_attend, (
                q_tile, k_ring, v_ring, q_ready, k_ready, v_ready, Q_ROWS, K_ROWS, q_n, k_n,
                OUT, LSE, ENTROPY, DISTANCE, MAX_SCORE, ARGMAX, FIRST_WEIGHT, TILE_MAXIMA, DIRTY, SINK,
                LOW, HIGH,
                row_at, q_first, stop - 1, stop - first, full_first, full_stop, q_len, offset, maxima_rows, c,
                first_keys, 1, BLOCK_K, DIM, STAGES, HAS_SINK, ENTROPIES, DISTANCES, MAX_SCORES, FIND_KEY,
                FIRST_KEYS, GRAIN)),
            (_load, (
                Q, K, V, q_tma_tile, k_tma, v_tma, q_ready, k_ready, v_ready,
                batch, head, head // group, q_first, stop - 1, stop - first, BLOCK_K, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
