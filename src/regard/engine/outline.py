"""Attention on the meta device, where tensors have shapes and no numbers."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem

__all__ = ["outlined"]


def outlined(problem: Problem) -> Float[Tensor, "batch heads q v_dim"]:
    """An output with the right shape, dtype and device, and a graph to every input that requires grad."""
    given = (problem.q, problem.k, problem.v, problem.sink, *problem.scoring.parameters())
    out = problem.q.new_zeros((*problem.q.shape[:3], problem.v.shape[3]))
    for x in given:
        out = out if x is None else out + x.sum().to(out)
    return out
