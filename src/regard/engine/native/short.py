"""Short observations: what follows from shapes, mask and statistics is remembered, and the numbers are left.

A call that is like an earlier one needs no checks, no schedule and no table of jobs: one kernel call, or
PyTorch's kernel and then one, fills fresh tensors. Only calls that need no error, gradient or option come
this way.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.engine.finite import finite
from regard.engine.inputs import Options, problem_of
from regard.engine.native.attending import can_attend
from regard.engine.native.library import load
from regard.engine.native.plans import MapPlan, RowPlan, map_plan, row_plan
from regard.engine.problem import Problem
from regard.engine.sdpa_backend.calls import SHORT
from regard.engine.sdpa_backend.short import suits
from regard.errors import StatisticError
from regard.masks import Mask
from regard.memo import remembered
from regard.stats import Frame, by_name

__all__ = ["short_observed"]

# In larger calls the numbers take longer than all that is saved, and a plan holds results like theirs.
NUMBERS = 1 << 18
Seen = tuple[Problem, Tensor, Tensor, dict[str, Any]]


def short_observed(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, scale: float | None, statistics: tuple[object, ...]
) -> Seen | None:
    """Problem, output, log-sum-exp and statistics; None if a call is to be run in the ordinary way."""
    if q.dtype != torch.float32 or not suits(q, k, v) or max(q.shape[2], k.shape[2]) > SHORT:
        return None
    if mask is not None:
        # Raises if the tensor of the mask was written to, which no cache notices by itself.
        mask = mask.bind(*q.shape[:2])
        if mask.batch is not None:
            return None
    if q.numel() > NUMBERS or not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        return None
    packed = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    strides = None if packed else (q.stride(), k.stride(), v.stride())
    plan = _like(mask, scale, statistics, q.shape, k.shape, strides).plan()
    if plan is None or not finite(q, k, v):
        return None
    return plan.observe(q, k, v)


@dataclass(eq=False)
class _Like:
    """Calls that are alike; they have a plan from the second one on, because many never come again."""

    mask: Mask | None
    scale: float | None
    statistics: tuple[object, ...]
    q: torch.Size
    k: torch.Size
    strides: tuple[tuple[int, ...], ...] | None
    came: bool = False

    def plan(self) -> RowPlan | MapPlan | None:
        """How to run such a call; None if there is no short way, or this is the first."""
        came, self.came = self.came, True
        return self._found if came else None

    @cached_property
    def _found(self) -> RowPlan | MapPlan | None:
        if isinstance(load(), str):
            return None
        q, k, v = (
            torch.zeros(shape, dtype=torch.float32, device="cpu") for shape in (self.q, self.k, self.k)
        )
        if self.strides is not None:
            q, k, v = (
                torch.empty_strided(x.shape, stride, dtype=x.dtype, device="cpu").zero_()
                for x, stride in zip((q, k, v), self.strides, strict=True)
            )
        problem = problem_of(q, k, v, Options(self.mask, self.scale))
        if not can_attend(problem, []):
            return None
        frame = Frame(problem.batch, problem.heads, problem.q_len, problem.k_len, problem.mask)
        named = by_name(self.statistics)
        for statistic in named.values():
            statistic.check(replace(frame, values=v))
        with suppress(StatisticError):
            return row_plan(problem, frame, named) or map_plan(problem, frame, named)
        # It weighs values, which no plan has.
        return None


@remembered(64)
def _like(
    mask: Mask | None,
    scale: float | None,
    statistics: tuple[object, ...],
    q: torch.Size,
    k: torch.Size,
    strides: tuple[tuple[int, ...], ...] | None,
) -> _Like:
    # What is no value is not remembered: then every call is the first of its kind.
    return _Like(mask, scale, statistics, q, k, strides)
