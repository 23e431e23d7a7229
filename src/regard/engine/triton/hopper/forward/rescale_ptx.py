"""The PTX of rescale.py: raise the base of rows, and compute a tile's weights again if scores leap.

A weight is 2^(score - base). If a score is far above the base, its weight or sums of it overflow, and no
factor can repair that: the score leaps. Then the warp computes the scores of its 16 rows again, by warp-level
matrix products (`mma.sync`) of queries and keys from global memory, and takes their maximum as the new base.
The sums of earlier tiles are smaller by more than 2^LEAP, far below rounding, and are dropped.

Mostly few keys leap. Then only their blocks of eight keys are multiplied, twice: for the base, and for the
weights. That takes few instructions, and they must all be fetched, because this branch is rarely taken.
Other keys are smaller by more than 2^(LEAP - LARGE), and are dropped. If many keys leap, the whole tile is
multiplied at once, and always at head dim 64.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import product

from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.thread_ops_ptx import registers

__all__ = ["RESCALE_TILE", "RESCALE_TILE_OPERANDS"]

# From this excess on, as a power of two, weights are computed again: those above 2^LARGE, if they are in at
# most FEW blocks. Below it, sums of weights times key numbers stay finite.
LEAP, LARGE, FEW = 90.0, 40.0, 4
# Weights of a tile that one thread holds: two rows of 32.
TILE = 64
# Columns of a tile, and of one warp-level product.
COLUMNS, BLOCK = 128, 8
# Bytes of a row that its four threads read at once: 32 elements, for two products.
CHUNK = 64
# No-ops in variants that find the argmax key: without them, the code after this branch would compete for
# instruction cache lines with the code before it and with the other warpgroup's (see `pad_code`).
PADDING = {64: 96, 128: 256}
# Bytes of a line of the first-level cache, into which rows are prefetched.
LINE = 128
# The exponent of a masked score: finite, so that 0 times it is 0. In PTX's notation of floats.
MASKED, NOTHING, ONE = "0fFCF0BDC2", "0f00000000", "0f3F800000"  # -1e37, 0, 1
LOWEST, INFINITE = "0fFF800000", "0f7F800000"
# The operands for computing scores again: the addresses of the thread's two queries and of its first key of
# tile 0; the stride of keys, in elements; the tile; the interval of keys that each row sees; half the scale.
AGAIN: tuple[str, ...] = ("q", "k", "step", "tile", "low", "high", "scale")
AGAIN_OPERANDS = "llrrrrf"


@dataclass(frozen=True)
class Variant:
    """A variant of the forward.

    energies, distances: whether these sums are computed beside the sum of the weights.
    whole_output: whether the output has as many numbers as the tile has weights.
    logs: whether the largest weight is given as its logarithm.
    find_key: whether the argmax key is found.
    parts: into how many parts, with a maximum each, a tile is divided.
    """

    energies: bool
    distances: bool
    whole_output: bool
    logs: bool
    find_key: bool
    parts: int
    dim: int
    bfloat16: bool

    @property
    def slack(self) -> float:
        """How far weights may exceed 1, as a power of two, before the base of their row is raised.

        Raising takes time. Weights of float16 end at 2^16; and entropies, which are differences, and tile
        maxima, which are logarithms, lose precision far from the base.
        """
        if not self.bfloat16:
            return 8.0
        return 16.0 if self.energies or self.parts else 32.0

    @property
    def counts_blocks(self) -> bool:
        """Whether few blocks are treated apart. At head dim 64 all row statistics took 6 % longer with it."""
        return self.dim == COLUMNS

    @property
    def sums(self) -> list[str]:
        """The names of the numbers per row that are updated."""
        asked = ["energy"] * self.energies + ["distance"] * self.distances
        return ["base", "total", *asked, *(f"maximum{i}" for i in range(self.parts))]


def _rescale_tile(it: Variant) -> str:
    """PTX: if a tile has a score far above the base of its row, raise the base, and rescale the tile's
    weights, the sums so far, and the output if it is given.

    Weights may be as large as 2^slack; only beyond that do the four threads of a row compute their maximum.
    All of it is one rarely taken branch, because every branch costs an instruction fetch.

    Operands: results (weights, the output or the factor for it, and the `sums` of the variant), the first one
    or two of them as inputs, the thread's largest weights or their logarithms, the sums as inputs, and AGAIN.
    Each operand has as many registers as a thread has weights. Of every four registers the first two belong
    to one row and the others to another; a number per row is in the register of the row's first weight.
    """
    weights, output, *rest = registers(2 + 2 * len(it.sums) + 1 + it.whole_output + 1 + len(AGAIN), TILE)
    new = dict(zip(it.sums, rest, strict=False))
    mine, *rest = rest[len(it.sums) + 1 + it.whole_output :]
    old = dict(zip(it.sums, rest, strict=False))
    again = dict(zip(AGAIN, rest[len(it.sums) :], strict=True))

    lines = ["{ .reg .pred far<2>, leap<2>, leaps, some; .reg .f32 left<2>, top, other, scale;"]
    lines += [".reg .s32 tile; .reg .b32 blocks, count;"]
    lines += [f"mov.f32 {new[name][row]}, {old[name][row]};" for name in it.sums for row in (0, 2)]
    lines += [] if it.whole_output else [f"mov.f32 {output[row]}, {ONE};" for row in (0, 2)]
    for i in range(2):
        lines += [f"setp.gt.f32 far{i}, {mine[2 * i]}, {it.slack if it.logs else 2.0**it.slack};"]
    lines += ["or.pred some, far0, far1;", *_unless_any("some", "done")]
    for i in range(2):
        before, after = ({name: some[name][2 * i] for name in it.sums} for some in (old, new))
        lines += [*_row_maximum(mine[2 * i], "top"), *([] if it.logs else ["lg2.approx.ftz.f32 top, top;"])]
        lines += [f"setp.gt.f32 far{i}, top, {it.slack}; setp.gt.f32 leap{i}, top, {LEAP};"]
        lines += [f"selp.f32 top, top, {NOTHING}, far{i}; add.f32 {after['base']}, {before['base']}, top;"]
        lines += [f"neg.f32 top, top; ex2.approx.ftz.f32 left{i}, top;"]
        lines += [f"selp.f32 left{i}, {NOTHING}, left{i}, leap{i};"]
        if it.energies:
            lines += [f"fma.rn.f32 {after['energy']}, top, {before['total']}, {before['energy']};"]
            lines += [f"mul.f32 {after['energy']}, {after['energy']}, left{i};"]
        lines += [f"mul.f32 {after['total']}, {before['total']}, left{i};"]
        lines += [f"mul.f32 {after['distance']}, {before['distance']}, left{i};"] if it.distances else []
        lines += [] if it.whole_output else [f"mov.f32 {output[2 * i]}, left{i};"]
    if it.whole_output:
        lines += [f"mul.f32 {x}, {x}, left{_row(i)};" for i, x in enumerate(output)]
    lines += ["or.pred leaps, leap0, leap1;"]
    lines += [*_unless_any("leaps", "near"), *_large_blocks(weights)] if it.counts_blocks else []
    # Infinite weights become NaN here, and are computed again below.
    lines += ["near:", *(f"mul.f32 {x}, {x}, left{_row(i)};" for i, x in enumerate(weights))]
    lines += ["@!leaps bra done;"] if it.counts_blocks else _unless_any("leaps", "done")
    lines += [f"mov.b32 tile, {again['tile'][0]}; add.f32 scale, {again['scale'][0]}, {again['scale'][0]};"]
    if it.counts_blocks:
        lines += [f"popc.b32 count, blocks; setp.gt.u32 some, count, {FEW}; @some bra many;"]
        lines += [*_few_bases(new, again, it), *_few_weights(weights, new, again, it), "bra done;", "many:"]
    lines += [*_scores(weights, again, it), *_mask(weights, again), *_weights(weights, new, again, it)]
    padding = "bar.warp.sync 0xffffffff; " * (PADDING[it.dim] if it.find_key else 0)
    return "\n".join([*lines, padding, "done: }"])


def _rescale_operands(it: Variant) -> str:
    kept, sums = (1 + it.whole_output) * TILE, len(it.sums)
    results = ["=f"] * kept + ["=&f"] * ((2 + sums) * TILE - kept)
    inputs = ["f"] * ((1 + sums) * TILE) + [letter for letter in AGAIN_OPERANDS for _ in range(TILE)]
    return ",".join([*results, *map(str, range(kept)), *inputs])


def _large_blocks(weights: list[str]) -> list[str]:
    """Set bit b of `blocks` if columns 8b to 8b + 7 have a large weight in some row that leaps."""
    lines = ["{ .reg .f32 limit<2>, x; mov.b32 blocks, 0;"]
    lines += [f"selp.f32 limit{i}, {2.0**LARGE}, {INFINITE}, leap{i};" for i in range(2)]
    for block in range(COLUMNS // BLOCK):
        a, b, c, d = weights[4 * block : 4 * block + 4]
        lines += [f"max.f32 x, {a}, {b}; setp.gt.f32 some, x, limit0; max.f32 x, {c}, {d};"]
        lines += [f"setp.gt.or.f32 some, x, limit1, some; @some or.b32 blocks, blocks, {1 << block};"]
    return [*lines, "redux.sync.or.b32 blocks, blocks, 0xffffffff; }"]


def _few_bases(new: dict[str, list[str]], again: dict[str, list[str]], it: Variant) -> list[str]:
    """Set the base of rows that leap to their largest score, and infinite maxima of the tile's parts to the
    thread's largest scores there."""
    lines = ["{ .reg .f32 most<4>, x; .reg .pred early;"]
    # The maxima of the two halves of the tile, for two rows.
    lines += [f"mov.f32 most{i}, {LOWEST};" for i in range(4)]
    body = [f"setp.lt.u32 early, block, {COLUMNS // BLOCK // 2};"]
    for i in range(2):
        body += [f"max.f32 x, s{2 * i}, s{2 * i + 1}; selp.f32 other, x, {LOWEST}, early;"]
        body += [f"max.f32 most{i}, most{i}, other; selp.f32 other, {LOWEST}, x, early;"]
        body += [f"max.f32 most{2 + i}, most{2 + i}, other;"]
    lines += _for_each_block(body, again, it)
    for i in range(2):
        halves = [f"most{i}", f"most{2 + i}"]
        lines += [f"mul.f32 {x}, {x}, scale;" for x in halves]
        lines += [f"max.f32 x, {halves[0]}, {halves[1]};"]
        found = halves if it.parts == 2 else ["x"] * it.parts
        for part, most in enumerate(found):
            to = new[f"maximum{part}"][2 * i]
            lines += [f"setp.eq.and.f32 some, {to}, {INFINITE}, leap{i}; selp.f32 {to}, {most}, {to}, some;"]
        base = new["base"][2 * i]
        lines += [*_row_maximum("x", "top"), f"selp.f32 {base}, top, {base}, leap{i};"]
    return [*lines, "}"]


def _few_weights(
    weights: list[str], new: dict[str, list[str]], again: dict[str, list[str]], it: Variant
) -> list[str]:
    """Set the large weights of rows that leap, and the sums of these rows."""
    sums = [name for name in ("total", "energy", "distance") if name in new]
    lines = ["{ .reg .f32 minus<2>, x, far;", *(f".reg .f32 {name}<2>;" for name in sums)]
    for i in range(2):
        lines += [f"neg.f32 minus{i}, {new['base'][2 * i]};"]
        lines += [f"mov.f32 {name}{i}, {NOTHING};" for name in sums]
    body = []
    for i in range(4):
        row, s = i // 2, f"s{i}"
        body += [f"fma.rn.f32 x, {s}, scale, minus{row}; max.NaN.f32 x, x, {MASKED};"]
        body += [f"ex2.approx.ftz.f32 {s}, x; add.f32 total{row}, total{row}, {s};"]
        body += [f"fma.rn.f32 energy{row}, {s}, x, energy{row};"] if it.energies else []
        if it.distances:
            body += [f"add.s32 bit, at, {i % 2}; cvt.rn.f32.s32 far, bit;"]
            body += [f"fma.rn.f32 distance{row}, {s}, far, distance{row};"]
    for block in range(COLUMNS // BLOCK):
        for i in range(2):
            body += [f"setp.eq.and.u32 some, block, {block}, leap{i};"]
            for column in range(2):
                body += [f"@some mov.f32 {weights[4 * block + 2 * i + column]}, s{2 * i + column};"]
    lines += _for_each_block(body, again, it)
    for i in range(2):
        for name in sums:
            to = new[name][2 * i]
            lines += [f"selp.f32 {to}, {name}{i}, {to}, leap{i};"]
    return [*lines, "}"]


def _for_each_block(body: list[str], again: dict[str, list[str]], it: Variant) -> list[str]:
    """Run `body` for each of `blocks`, with the block's number in `block`, its first key in `at`, and the
    unscaled scores of the thread's two rows and two columns in `s0` to `s3`: -inf for keys that a row doesn't
    see."""
    lines = ["{ .reg .b32 at, bit, block, todo, key<2>; .reg .f32 s<4>; mov.b32 todo, blocks;"]
    lines += ['more: .pragma "nounroll";']
    lines += ["neg.s32 bit, todo; and.b32 bit, todo, bit; xor.b32 todo, todo, bit; bfind.u32 block, bit;"]
    lines += [f"mul.lo.s32 at, block, {BLOCK}; mad.lo.s32 at, tile, {COLUMNS}, at;"]
    lines += _block_scores(again, it)
    lines += ["mov.u32 bit, %laneid; and.b32 bit, bit, 3; shl.b32 bit, bit, 1;"]
    lines += ["add.s32 key0, at, bit; add.s32 key1, key0, 1;"]
    for i in range(4):
        low, high = (again[side][i - i % 2] for side in ("low", "high"))
        lines += [f"setp.ge.s32 some, key{i % 2}, {low}; setp.lt.and.s32 some, key{i % 2}, {high}, some;"]
        lines += [f"selp.f32 s{i}, s{i}, {LOWEST}, some;"]
    return [*lines, *body, "setp.ne.u32 some, todo, 0; @some bra more; }"]


def _block_scores(again: dict[str, list[str]], it: Variant) -> list[str]:
    """The unscaled scores s0 to s3 of a thread: two rows, two neighbouring columns from key `at` on. Elements
    are multiplied as in `_scores`."""
    lines = ["{ .reg .b32 a<4>, b<4>, c<4>, step; .reg .u64 q_at<2>, k_at;"]
    lines += [f"shl.b32 step, {again['step'][0]}, 1; mad.wide.s32 k_at, at, step, {again['k'][0]};"]
    lines += [f"mov.u64 q_at0, {again['q'][0]}; mov.u64 q_at1, {again['q'][2]};"]
    rows = {"a": "q_at0", "b": "q_at1", "c": "k_at"}
    for byte in range(0, 2 * it.dim, LINE):
        lines += [f"prefetch.global.L1 [{at} + {byte}];" for at in rows.values()]
    lines += [*(f"mov.f32 s{i}, {NOTHING};" for i in range(4)), "mov.b32 step, 0;"]
    # A loop, because operands of several turns would not fit into the registers.
    lines += ['next: .pragma "nounroll";']
    for name, at in rows.items():
        lines += [f"ld.global.v4.b32 {{{_list(name)}}}, [{at}]; add.u64 {at}, {at}, {CHUNK};"]
    lines += _products("{s0, s1, s2, s3}", it)
    return [*lines, f"add.u32 step, step, {CHUNK}; setp.lt.u32 some, step, {2 * it.dim}; @some bra next; }}"]


def _products(sums: str, it: Variant) -> list[str]:
    """Add the products of 32 elements of 16 rows (a, b) and 8 keys (c) to the sums."""
    half = "bf16" if it.bfloat16 else "f16"
    mma = f"mma.sync.aligned.m16n8k16.row.col.f32.{half}.{half}.f32"
    return [f"{mma} {sums}, {{a{x}, b{x}, a{y}, b{y}}}, {{c{x}, c{y}}}, {sums};" for x, y in ((0, 1), (2, 3))]


def _scores(scores: list[str], again: dict[str, list[str]], it: Variant) -> list[str]:
    """The unscaled scores of a warp's 16 rows and the tile's columns.

    Each of the four threads of a row reads the same 8 elements of its two rows and of each key; the order in
    which elements are multiplied doesn't matter. The tile is full of keys: the only other tile is visited
    first, when no row has a base yet.
    """
    q, (k, *_), (step, *_) = (again[name] for name in ("q", "k", "step"))
    lines = ["{ .reg .b32 lane, row, at, done, a<4>, b<4>, c<4>; .reg .u64 q_at<2>, k_at, from, step;"]
    lines += [f"mov.u64 q_at0, {q[0]}; mov.u64 q_at1, {q[2]};"]
    lines += [f"shl.b32 at, {step}, 1; mul.lo.s32 row, tile, {COLUMNS}; mad.wide.s32 from, row, at, {k};"]
    # Lane i fetches keys i, i + 32 and so on.
    lines += ["mov.u32 lane, %laneid; shr.u32 row, lane, 2; sub.s32 row, lane, row;"]
    lines += [f"mad.wide.s32 k_at, row, at, from; mul.wide.s32 step, {step}, {2 * 32};"]
    for _ in range(COLUMNS // 32):
        lines += [f"prefetch.global.L1 [k_at + {byte}];" for byte in range(0, 2 * it.dim, LINE)]
        lines += ["add.u64 k_at, k_at, step;"]
    lines += [f"mul.wide.s32 step, {step}, {2 * 8};"]
    lines += [f"mov.f32 {x}, {NOTHING};" for x in scores]
    lines += ["mov.u32 done, 0;", 'more: .pragma "nounroll";']
    lines += [f"ld.global.v4.b32 {{{_list('a')}}}, [q_at0]; add.u64 q_at0, q_at0, {CHUNK};"]
    lines += [f"ld.global.v4.b32 {{{_list('b')}}}, [q_at1]; add.u64 q_at1, q_at1, {CHUNK};"]
    lines += ["mov.u64 k_at, from;"]
    for block in range(COLUMNS // 8):
        lines += [f"ld.global.v4.b32 {{{_list('c')}}}, [k_at]; add.u64 k_at, k_at, step;"]
        lines += _products("{" + ", ".join(scores[4 * block : 4 * block + 4]) + "}", it)
    lines += [f"add.u64 from, from, {CHUNK}; add.u32 done, done, {CHUNK};"]
    return [*lines, f"setp.lt.u32 some, done, {2 * it.dim}; @some bra more; }}"]


def _mask(scores: list[str], again: dict[str, list[str]]) -> list[str]:
    """Set the scores of keys that a row doesn't see to -inf."""
    lines = ["{ .reg .pred seen; .reg .s32 low<2>, high<2>, first;"]
    lines += ["mov.u32 first, %laneid; and.b32 first, first, 3; shl.b32 first, first, 1;"]
    lines += [f"mad.lo.s32 first, tile, {COLUMNS}, first;"]
    for i in range(2):
        lines += [f"sub.s32 {side}{i}, {again[side][2 * i]}, first;" for side in ("low", "high")]
    for i, x in enumerate(scores):
        lines += [f"setp.le.s32 seen, low{_row(i)}, {_column(i)};"]
        lines += [f"setp.gt.and.s32 seen, high{_row(i)}, {_column(i)}, seen;"]
        lines += [f"selp.f32 {x}, {x}, {LOWEST}, seen;"]
    return [*lines, "}"]


def _weights(
    scores: list[str], new: dict[str, list[str]], again: dict[str, list[str]], it: Variant
) -> list[str]:
    """Turn scores into weights; for rows that leap, also set the base, the sums and the maxima."""
    lines = ["{ .reg .f32 most<4>, sum<2>, energy<2>, far<2>, minus<2>, x, first;"]
    # The maxima of the two halves of the tile, for two rows.
    lines += [f"mov.f32 most{i}, {LOWEST};" for i in range(4)]
    for i, x in enumerate(scores):
        half = 2 * (i // (TILE // 2)) + _row(i)
        lines += [f"max.f32 most{half}, most{half}, {x};"]
    for i in range(2):
        halves = [f"most{i}", f"most{2 + i}"]
        lines += [f"mul.f32 {x}, {x}, scale;" for x in halves]
        lines += [f"max.f32 x, {halves[0]}, {halves[1]};"]
        found = halves if it.parts == 2 else ["x"] * it.parts
        for part, most in enumerate(found):
            to = new[f"maximum{part}"][2 * i]
            lines += [f"selp.f32 {to}, {most}, {to}, leap{i};"]
        base = new["base"][2 * i]
        lines += [*_row_maximum("x", "top"), f"selp.f32 {base}, top, {base}, leap{i};"]
        lines += [f"neg.f32 minus{i}, {base};"]
        lines += [f"mov.f32 sum{i}, {NOTHING}; mov.f32 energy{i}, {NOTHING}; mov.f32 far{i}, {NOTHING};"]
    for i, x in enumerate(scores):
        row = _row(i)
        lines += [f"fma.rn.f32 x, {x}, scale, minus{row}; max.NaN.f32 x, x, {MASKED};"]
        lines += [f"ex2.approx.ftz.f32 {x}, x; add.f32 sum{row}, sum{row}, {x};"]
        lines += [f"fma.rn.f32 energy{row}, {x}, x, energy{row};"] if it.energies else []
        lines += [f"fma.rn.f32 far{row}, {x}, {float(_column(i))}, far{row};"] if it.distances else []
    lines += [f"cvt.rn.f32.s32 first, tile; mul.f32 first, first, {float(COLUMNS)};"]
    for i in range(2):
        lines += [f"fma.rn.f32 far{i}, sum{i}, first, far{i};"]
        for name, found in (("total", "sum"), ("energy", "energy"), ("distance", "far")):
            if name in new:
                to = new[name][2 * i]
                lines += [f"selp.f32 {to}, {found}{i}, {to}, leap{i};"]
    return [*lines, "}"]


def _row_maximum(mine: str, to: str) -> list[str]:
    """The maximum over the four threads of a row."""
    lines = [f"mov.f32 {to}, {mine};"]
    for lane in (1, 2):
        lines += [f"shfl.sync.bfly.b32 other, {to}, {lane}, 31, 0xffffffff; max.f32 {to}, {to}, other;"]
    return lines


def _unless_any(predicate: str, label: str) -> list[str]:
    """Go to the label, unless the predicate is true in any thread of the warp."""
    return [f"vote.sync.any.pred {predicate}, {predicate}, 0xffffffff; @!{predicate} bra {label};"]


def _row(i: int) -> int:
    """The row, 0 or 1, of a thread's i-th weight."""
    return i // 2 % 2


def _column(i: int) -> int:
    """The column of a thread's i-th weight, minus twice the thread's number among the four of its row."""
    return i // 4 * 8 + i % 2


def _list(name: str) -> str:
    return ", ".join(f"{name}{i}" for i in range(4))


# (logs, find_key, parts): variants with max scores keep no tile maxima.
_LARGEST = [(True, False, 0), (True, True, 0), (False, False, 0), (False, False, 1), (False, False, 2)]
# By the fields of the variant.
_VARIANTS = [
    Variant(energies, distances, dim == COLUMNS, logs, find_key, parts, dim, bfloat16)
    for energies, distances, dim, bfloat16 in product((False, True), (False, True), (64, 128), (False, True))
    for logs, find_key, parts in _LARGEST
]
RESCALE_TILE = gl.constexpr({astuple(it): _rescale_tile(it) for it in _VARIANTS})
RESCALE_TILE_OPERANDS = gl.constexpr({astuple(it): _rescale_operands(it) for it in _VARIANTS})
