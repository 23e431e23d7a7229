"""Gradients of a few rows in half precision, computed in float32.

A fused backward takes `d_out . out` from an output that was rounded to half precision. Where one key has
almost all the weight, the gradient of a score is a difference smaller than that rounding, and a large query
or key multiplies the error. Over many rows eager attention in half precision is as far off somewhere; over
a few it need not be. So few rows, where time does not count, are computed again in float32.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.torch_forward import forward

__all__ = ["few_rows", "in_float32", "widened"]

# Queries. Neither batch rows nor heads count: a row alone must have the bits that it has among others.
FEW = 8


def few_rows(problem: Problem) -> bool:
    """Whether the gradients of a problem are computed in float32 although it is in half precision."""
    return problem.q.dtype in (torch.float16, torch.bfloat16) and problem.q_len <= FEW


def in_float32(problem: Problem, backend: str) -> Problem | None:
    """The problem in float32 if it is in half precision and goes to PyTorch's kernel for the CPU, else None.

    In half precision that kernel approximates exp, so its log-sum-exp is off by 6e-5, and every weight of a
    map would be. It also accumulates gradients in half precision. float32 costs nothing: without AMX the
    forward pass takes as long, and the backward pass a half (bfloat16) to a twentieth (float16) of the time.
    """
    half = problem.q.dtype in (torch.float16, torch.bfloat16)
    if not half or backend not in ("sdpa", "native") or problem.q.device.type != "cpu":
        return None
    return _in(problem, torch.float32)


def widened(problem: Problem, riders: Riders, dtype: torch.dtype) -> tuple[Problem, Streamed]:
    """A problem in another dtype, and what its forward pass returns."""
    wide = _in(problem, dtype)
    return wide, forward(wide, riders)


def _in(problem: Problem, dtype: torch.dtype) -> Problem:
    return replace(problem, **{name: getattr(problem, name).to(dtype) for name in ("q", "k", "v")})
