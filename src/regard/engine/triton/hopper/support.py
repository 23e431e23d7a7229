"""Which problems the Hopper kernels can run; importing this loads no kernel."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from regard.engine.problem import Problem, asked_once
from regard.engine.triton.configs import TESTED_TRITON, generation, interpreted
from regard.engine.triton.launch.untested import warn_untested
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import has_intervals, intervals

__all__ = ["applicable", "faster_than_vendor", "finds_argmax"]

# Warpgroup instructions exist in this generation only: Ampere has none, Blackwell has different ones.
GENERATION = 9
SLOWER = (
    "the kernels for Hopper are off, so 16-bit attention, its backward and its statistics run in the "
    "slower portable kernels"
)
DIMS = (64, 128)
# The limit of a grid's second axis, on which some kernels have one program per map.
MOST_MAPS = 65535
# From this length on, at this head dim, our plain forward is faster than cuDNN: benchmarks/results/gpu.md.
FASTER_FROM, FASTER_DIM = 4096, 128
# Up to this many visible keys per row (on average, by head dim), the forward finds the argmax itself, in
# every tile. Above that it is faster to remember the tile of the maximum and to search that tile again.
FEW_KEYS = {64: 1024, 128: 4096}


@asked_once
def applicable(problem: Problem) -> bool:
    """Whether the Hopper kernels can run a problem: half precision, equal head dims, scaled dot products, a
    mask of intervals."""
    q, v = problem.q, problem.v
    if not (q.is_cuda and generation(q.device) == GENERATION and _has_gluon()):
        return False
    half = q.dtype in (torch.float16, torch.bfloat16)
    scoring = problem.scoring
    plain = scoring.bias is None and scoring.softcap is None and scoring.score_mod is None
    if not (half and plain and q.shape[-1] == v.shape[-1] and q.shape[-1] in DIMS):
        return False
    if q.shape[0] * q.shape[1] > MOST_MAPS:
        return False
    if not (Operands(problem).tma and scoring.scale):
        return False
    return has_intervals(problem)


def faster_than_vendor(problem: Problem) -> bool:
    """Whether the plain forward for Hopper is faster than cuDNN's."""
    long = min(problem.q_len, problem.k_len) >= FASTER_FROM
    return long and problem.q.shape[-1] == FASTER_DIM and applicable(problem)


def finds_argmax(problem: Problem) -> bool:
    """Whether the forward returns the argmax key of each row, and not only its tile."""
    return intervals(problem).seen_by_row <= FEW_KEYS[problem.q.shape[-1]]


@cache
def _has_gluon() -> bool:
    if interpreted() or find_spec("triton.experimental.gluon.language.nvidia.hopper") is None:
        return False
    import triton

    if triton.__version__.startswith(TESTED_TRITON):
        return True
    warn_untested(triton.__version__, SLOWER)
    return False
