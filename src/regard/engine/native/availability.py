"""When the native kernels do not read a map, and why."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.native.library import load
from regard.engine.problem import Problem

__all__ = ["explain", "refusal"]


def explain(problem: Problem, backend: str) -> str:
    """What will read a map, in words."""
    why, library = refusal(problem, backend), load()
    if why is not None or isinstance(library, str):
        return f"torch operations: {why}"
    return f"native kernels ({library.isa})"


def refusal(
    problem: Problem, backend: str = "auto", lse: Float[Tensor, "batch heads q"] | None = None
) -> str | None:
    """Why the kernels do not read a map, or None if they do; with its log-sum-exp once that is known."""
    library = load()
    if backend == "torch":
        return "asked for by name"
    if isinstance(library, str):
        return library
    if problem.q.device.type != "cpu":
        return f"the native kernels run on the CPU, and q is on {problem.q.device}"
    if problem.accumulate != torch.float32:
        return "the native kernels compute in float32, and q is float64"
    # The kernels count on scores that are numbers or -inf; torch operations carry the others along.
    if lse is not None and not bool((lse < torch.inf).all()):
        return "some scores are NaN or inf"
    return None
