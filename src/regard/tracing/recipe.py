"""The settings of a traced computation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from regard.engine.problem import Problem
from regard.scores import DotProduct

__all__ = ["Recipe"]


@dataclass(frozen=True, eq=False)
class Recipe:
    """The settings of one computation, which the written-out arithmetic needs.

    `root` is the d of a scale of 1/√d, or None for any other scale.

    >>> import torch
    >>> from regard.engine.inputs import Options, problem_of
    >>> q = torch.ones(1, 4, 3, 16)
    >>> recipe = Recipe.of(problem_of(q, q, q, Options()), {})
    >>> recipe.root, recipe.scale, recipe.group
    (16, 0.25, 1)
    """

    dot: bool
    root: int | None
    scale: float
    softcap: float | None
    sink: Tensor | None
    group: int
    matrices: dict[str, Tensor]

    @classmethod
    def of(cls, problem: Problem, matrices: dict[str, Tensor]) -> Recipe:
        """The settings of a problem."""
        scoring, dim = problem.scoring, problem.q.shape[-1]
        dot = isinstance(scoring.score, DotProduct)
        # Compare with a tolerance, because a model's scale may have been rounded to float32.
        root = (
            dim
            if dot and math.isclose(scoring.scale, scoring.score.default_scale(dim), rel_tol=1e-6)
            else None
        )
        return cls(dot, root, scoring.scale, scoring.softcap, problem.sink, problem.group, matrices)
