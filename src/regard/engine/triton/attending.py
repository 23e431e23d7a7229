"""The forward of a call on a GPU, by whichever kernel is fastest for it."""

from __future__ import annotations

from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.triton import vendor

__all__ = ["attend"]

NOBODY = Riders()


def attend(problem: Problem, riders: Riders) -> Streamed:
    """Output, lse and what rides along: plain calls are left to NVIDIA's kernels, few queries decoded."""
    from regard.engine.triton import decode
    from regard.engine.triton.forward import forward

    if riders == NOBODY and vendor.applicable(problem):
        return Streamed(*vendor.forward(problem))
    if decode.applicable(problem):
        return decode.decode(problem, riders).streamed
    return forward(problem, riders)
