"""Gradients of a few rows in half precision, computed in float32.

A fused backward computes `d_out . out` from an output that was rounded to half precision. If one key has
almost all the weight, the gradient of a score is a difference smaller than that rounding, and large queries
or keys multiply the error. Over many rows, eager attention in half precision has errors as large; over a few
rows it may not. So gradients of few rows, which take little time, are computed in float32.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from regard.engine.problem import Problem

__all__ = ["few_rows", "is_half", "widened"]

# The most queries. Batch rows and heads don't count, so that a batch row has the same bits alone and in a
# batch.
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
