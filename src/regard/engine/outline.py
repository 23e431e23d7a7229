"""Attention on the meta device, where tensors have shapes and no numbers."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem

__all__ = ["outlined"]


def outlined(problem: Problem) -> Float[Tensor, "batch heads q v_dim"]:
    """The output's shape, dtype and device, with a graph back to every input that requires grad."""
    given = (problem.q, problem.k, problem.v, problem.sink, *problem.scoring.parameters())
    total = sum(x.sum() for x in given if x is not None)
    shape = (*problem.q.shape[:3], problem.v.shape[3])
    return problem.q.new_zeros(shape) + total.to(problem.q)
