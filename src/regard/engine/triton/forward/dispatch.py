"""Chooses the fastest forward kernel for a call on a GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.triton import hopper
from regard.engine.triton.forward import vendor
from regard.engine.triton.replay.calls import replay_or_call

__all__ = ["attend"]

NO_RIDERS = Riders()


def attend(problem: Problem, riders: Riders) -> Streamed:
    """Output, log-sum-exp and riders. Plain calls run on NVIDIA's kernels if these are faster, calls with few
    queries on the decode kernels."""
    if riders.columns is not None:
        return _attend(problem, riders)
    return replay_or_call(problem, (), ("attend", riders), partial(_attend, problem, riders))


def _attend(problem: Problem, riders: Riders) -> Streamed:
    from regard.engine.triton.decode import launch as decode
    from regard.engine.triton.forward.launch import forward

    few = decode.applicable(problem)
    if riders.top_keys or riders.grain:
        fast = not few and hopper.applicable(problem)
        riders = replace(
            riders, top_keys=riders.top_keys if few or fast else 0, grain=riders.grain if fast else 0
        )
    if riders == NO_RIDERS and vendor.applicable(problem) and not hopper.faster_than_vendor(problem):
        return Streamed(*vendor.forward(problem))
    if few:
        return decode.decode(problem, riders)
    return forward(problem, riders)
