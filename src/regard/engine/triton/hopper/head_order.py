"""The order of heads and blocks: under a mask, the longest blocks of several heads come before all shorter
ones.

Blocks are sorted longest first, so that short blocks fill the end of a launch. If heads run one after the
other, the short blocks of every head come before the long ones of the next, and heads with fewer blocks than
the GPU has multiprocessors leave some of them idle.
"""

from __future__ import annotations

from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.schedule.intervals import intervals

__all__ = ["grid", "heads_across"]

# The most keys of all interleaved heads in total: more would not stay in the second-level cache.
NEAR = 16384


def heads_across(problem: Problem, *tensors: Tensor) -> int:
    """How many heads are interleaved; 0 if heads run one after the other.

    Kernels then treat that many heads as one batch row. This needs packed tensors, and a mask and a sink that
    do not differ between heads. Without a mask all blocks take equally long, so there is nothing to gain.
    """
    p = problem
    if p.mask is None or p.sink is not None or p.k_len == 0:
        return 0
    table = intervals(p)
    packed = all(x.shape[0] == 1 or x.stride(0) == x.shape[1] * x.stride(1) for x in tensors)
    if table.planes > 1 or any(table.strides) or not packed:
        return 0
    most = min(p.heads, NEAR // p.k_len)
    return next((n for n in range(most, 1, -1) if p.heads % n == 0 and n % p.group == 0), 0)


def grid(blocks: int, heads: int, batch: int, across: int) -> tuple[int, int, int]:
    """The launch grid: blocks first, or heads first if `across` of them are interleaved."""
    return (across, blocks, batch * heads // across) if across else (blocks, heads, batch)
