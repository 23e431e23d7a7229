"""When the native kernels do not read a map, and why."""

from __future__ import annotations

import torch

from regard.engine.library import load
from regard.engine.problem import Problem

__all__ = ["explain", "refusal"]


def explain() -> str:
    """The text that names the native kernels as the reader of a map."""
    library = load()
    return f"native kernels ({library if isinstance(library, str) else library.isa})"


def refusal(problem: Problem) -> str | None:
    """Why the kernels do not read a map, or None if they do."""
    library = load()
    if isinstance(library, str):
        return library
    if problem.q.device.type != "cpu":
        return f"the native kernels run on the CPU, and q is on {problem.q.device}"
    if problem.accumulate != torch.float32:
        return "the native kernels compute in float32, and q is float64"
    return None
