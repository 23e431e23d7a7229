"""The PTX of rescale.py: raise the base of rows, and compute a tile's weights again if scores leap.

A weight is 2^(score - base). If a score is far above the base, its weight or sums of it overflow, and no
factor can repair that: the score leaps. Then the warp computes the scores of its 16 rows again, by warp-level
matrix products (`mma.sync`) of queries and keys from global memory, and takes their maximum as the new base.
The sums of earlier tiles are smaller by more than 2^LEAP, far below rounding, and are dropped.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import product

from triton.experimental.gluon import language as gl

from regard.engine.triton.hopper.thread_ops_ptx import registers

__all__ = ["RESCALE_TILE", "RESCALE_TILE_OPERANDS"]

# How far weights may exceed 1, as a power of two, before the base of their row is raised.
SLACK = 8.0
# From this excess on, as a power of two, weights are computed again. Below it, sums of weights times key
# numbers stay finite.
LEAP = 90.0
# Weights of a tile that one thread holds: two rows of 32.
TILE = 64
# Columns of a tile, and rows that one warp holds.
COLUMNS, WARP_ROWS = 128, 16
# Bytes of a row that its four threads read at once: 32 elements, for two products.
CHUNK = 64
# No-ops in variants that find the argmax key: without them, the code after this branch would compete for
# instruction cache lines with the code before it and with the other warpgroup's (see `pad_code`).
PADDING = 96
# Bytes of a line of the first-level cache, into which the tile is prefetched.
LINE = 128
# The exponent of a masked score: finite, so that 0 times it is 0. In PTX's notation of floats.
MASKED, NOTHING, ONE, LOWEST = "0fFCF0BDC2", "0f00000000", "0f3F800000", "0fFF800000"  # -1e37, 0, 1, -inf
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
    def sums(self) -> list[str]:
        """The names of the numbers per row that are updated."""
        asked = ["energy"] * self.energies + ["distance"] * self.distances
        return ["base", "total", *asked, *(f"maximum{i}" for i in range(self.parts))]


def _rescale_tile(it: Variant) -> str:
    """PTX: if a tile has a score far above the base of its row, raise the base, and rescale the tile's
    weights, the sums so far, and the output if it is given.

    Weights may be as large as 2^SLACK; only beyond that do the four threads of a row compute their maximum.
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

    lines = ["{ .reg .pred far<2>, leap<2>, some; .reg .f32 left<2>, top, other, scale; .reg .s32 tile;"]
    lines += [f"mov.f32 {new[name][row]}, {old[name][row]};" for name in it.sums for row in (0, 2)]
    lines += [] if it.whole_output else [f"mov.f32 {output[row]}, {ONE};" for row in (0, 2)]
    for i in range(2):
        lines += [f"setp.gt.f32 far{i}, {mine[2 * i]}, {SLACK if it.logs else 2.0**SLACK};"]
    lines += ["or.pred some, far0, far1;", *_unless_any("some", "done")]
    for i in range(2):
        before, after = ({name: some[name][2 * i] for name in it.sums} for some in (old, new))
        lines += [*_row_maximum(mine[2 * i], "top"), *([] if it.logs else ["lg2.approx.ftz.f32 top, top;"])]
        lines += [f"setp.gt.f32 far{i}, top, {SLACK}; setp.gt.f32 leap{i}, top, {LEAP};"]
        lines += [f"selp.f32 top, top, {NOTHING}, far{i}; add.f32 {after['base']}, {before['base']}, top;"]
        lines += [f"neg.f32 top, top; ex2.approx.ftz.f32 left{i}, top;"]
        lines += [f"selp.f32 left{i}, {NOTHING}, left{i}, leap{i};"]
        if it.energies:
            lines += [f"fma.rn.f32 {after['energy']}, top, {before['total']}, {before['energy']};"]
            lines += [f"mul.f32 {after['energy']}, {after['energy']}, left{i};"]
        lines += [f"mul.f32 {after['total']}, {before['total']}, left{i};"]
        lines += [f"mul.f32 {after['distance']}, {before['distance']}, left{i};"] if it.distances else []
        lines += [] if it.whole_output else [f"mov.f32 {output[2 * i]}, left{i};"]
    for x in (weights, output) if it.whole_output else (weights,):
        lines += [f"mul.f32 {x[i]}, {x[i]}, left{_row(i)};" for i in range(TILE)]
    lines += ["or.pred some, leap0, leap1;", *_unless_any("some", "done")]
    lines += [f"mov.b32 tile, {again['tile'][0]}; add.f32 scale, {again['scale'][0]}, {again['scale'][0]};"]
    lines += [*_scores(weights, again, it), *_mask(weights, again), *_weights(weights, new, again, it)]
    padding = "bar.warp.sync 0xffffffff; " * (PADDING if it.find_key else 0)
    return "\n".join([*lines, padding, "done: }"])


def _rescale_operands(it: Variant) -> str:
    kept, sums = (1 + it.whole_output) * TILE, len(it.sums)
    results = ["=f"] * kept + ["=&f"] * ((2 + sums) * TILE - kept)
    inputs = ["f"] * ((1 + sums) * TILE) + [letter for letter in AGAIN_OPERANDS for _ in range(TILE)]
    return ",".join([*results, *map(str, range(kept)), *inputs])


def _scores(scores: list[str], again: dict[str, list[str]], it: Variant) -> list[str]:
    """The unscaled scores of a warp's 16 rows and the tile's columns.

    Each of the four threads of a row reads the same 8 elements of its two rows and of each key; the order in
    which elements are multiplied doesn't matter. The tile is full of keys: the only other tile is visited
    first, when no row has a base yet.
    """
    q, (k, *_), (step, *_) = (again[name] for name in ("q", "k", "step"))
    half = "bf16" if it.bfloat16 else "f16"
    mma = f"mma.sync.aligned.m16n8k16.row.col.f32.{half}.{half}.f32"
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
        some = "{" + ", ".join(scores[4 * block : 4 * block + 4]) + "}"
        for x, y in ((0, 1), (2, 3)):
            lines += [f"{mma} {some}, {{a{x}, b{x}, a{y}, b{y}}}, {{c{x}, c{y}}}, {some};"]
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
