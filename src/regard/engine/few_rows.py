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

__all__ = ["few_rows", "is_half", "widened"]

# Queries. Neither batch rows nor heads count: a row alone must have the bits that it has among others.
FEW = 8


def few_rows(problem: Problem) -> bool:
    """Whether the gradients of a problem are computed in float32 although it is in half precision."""
    return is_half(problem) and problem.q_len <= FEW


def is_half(problem: Problem) -> bool:
    """Whether a problem is in half precision."""
    return problem.q.dtype in (torch.float16, torch.bfloat16)


def widened(problem: Problem, dtype: torch.dtype) -> Problem:
    """The same problem in another dtype."""
    return replace(problem, **{name: getattr(problem, name).to(dtype) for name in ("q", "k", "v")})
