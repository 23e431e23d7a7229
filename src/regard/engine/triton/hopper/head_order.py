"""The order of heads and blocks: under a mask, the longest blocks of several heads come before all shorter
ones.

Blocks are sorted longest first, so that short ones fill the end of a launch. With one head after the other
every head has such an end, and heads with fewer blocks than the GPU has multiprocessors leave some of them
idle.
"""

from __future__ import annotations

from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.schedule.intervals import intervals

__all__ = ["grid", "heads_across"]

# Keys of several heads that are read in turn, together: more would not stay near, in the second-level cache.
NEAR = 16384


def heads_across(problem: Problem, *tensors: Tensor) -> int:
    """How many heads take turns; 0 where one comes after the other.

    Kernels then take so many heads for a batch row, which is the same where a problem's tensors lie packed
    and neither mask nor sink knows one head from another. Without a mask all blocks are as long.
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
    """Programs for blocks of all heads: blocks come first, or heads if `across` of them take turns."""
    return (across, blocks, batch * heads // across) if across else (blocks, heads, batch)
