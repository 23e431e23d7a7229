"""How the launches of a decode step depend on the number of keys.

In a text that grows, no two steps have the same length, so a recording could never be replayed as it is. But
steps run the same kernels in the same order, and only the arguments named here depend on the length. So a
recording of one length is replayed for others, with these arguments replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.decode.launch import PIECE, applicable, most_splits, row_intervals, split
from regard.engine.triton.operands import Operands, steps
from regard.engine.triton.replay.growth import Growth, Lengths
from regard.engine.triton.replay.templates import KernelStart

__all__ = ["StepGrowth", "growth_of"]

INT32_END = 1 << 31
KEYS = ("k_len", "offset", "LOW", "HIGH", "mask_b", "mask_h", "k_b", "k_h", "k_n", "K")
# By kernel, its arguments that depend on the length.
GROWING = {
    "decode_kernel": (*KEYS, "v_b", "v_h", "v_n", "V", "splits", "per_split", "tiles", "TILE_MAXIMA"),
    "merge_kernel": ("splits",),
    "rescore_kernel": KEYS,
    "largest_kernel": ("length",),
}


@dataclass(frozen=True)
class StepGrowth(Growth):
    """What decode steps have in common that one recording replays.

    rounds: how many pieces the tiles of a row are searched in. planes: the shape of the mask's intervals, of
    which a mask may have one for all heads at one length, and one per head at another.
    """

    block: int
    most: int
    rounds: int
    planes: tuple[int, ...]
    k: tuple[int, int, int]
    v_dim: int

    def lengths(self, problem: Problem) -> Lengths | None:
        p, k, v, k_len = problem, problem.k, problem.v, problem.k_len
        if -(-k_len // (self.block * PIECE)) != self.rounds or not (_is_usual(k) and _is_usual(v)):
            return None
        rows = row_intervals(p)
        if tuple(rows["LOW"].shape[:2]) != self.planes:
            return None
        tiles = -(-k_len // self.block)
        splits, per_split = split(k_len, self.block, self.most)
        k_b, k_h, k_n, _ = k.stride()
        v_b, v_h, v_n, _ = v.stride()
        return {
            "k_len": k_len,
            "offset": p.offset,
            "splits": splits,
            "per_split": per_split,
            "tiles": tiles,
            "length": tiles,
            "TILE_MAXIMA": tiles,
            **rows,
            **{"k_b": k_b, "k_h": k_h, "k_n": k_n, "v_b": v_b, "v_h": v_h, "v_n": v_n},
            "K": _described(k),
            "V": _described(v),
        }

    def grid(self, step: KernelStart) -> str | None:
        return "splits" if step.name == "decode_kernel" else None

    def arguments(self, step: KernelStart) -> tuple[str, ...] | None:
        names = GROWING.get(step.name)
        if step.name == "largest_kernel" and not step.value("FIRST"):
            # Later rounds choose from the keys of the best tiles, of which there are always as many.
            return ()
        if step.name == "decode_kernel" and not step.value("HAS_TILE_MAXIMA"):
            return tuple(name for name in names or () if name != "TILE_MAXIMA")
        return names


def growth_of(problem: Problem) -> StepGrowth | None:
    """How a decode step grows with its keys; None if a problem is none."""
    p = problem
    if not applicable(p) or 0 in (p.q_len, p.k_len):
        return None
    block, (k_batch, k_heads, _, dim), v_dim = Operands(p).config("decode").block_k, p.k.shape, p.v.shape[3]
    planes = tuple(row_intervals(p)["LOW"].shape[:2])
    rounds = -(-p.k_len // (block * PIECE))
    return StepGrowth(block, most_splits(p), rounds, planes, (k_batch, k_heads, dim), v_dim)


def _described(x: Tensor) -> tuple[list[int], list[int]]:
    """Shape and strides as a TMA descriptor has them."""
    return list(x.shape), steps(x.shape, x.stride())


def _is_usual(x: Tensor) -> bool:
    """Whether all strides but the last are multiples of 16: for such, Triton compiles one kernel."""
    batch, head, row, last = x.stride()
    largest = max(batch, head, row)
    return last == 1 and not (batch | head | row) % 16 and min(batch, head, row) > 0 and largest < INT32_END
