"""Short observed calls: everything that depends only on shapes, mask and statistics is computed once.

A call with the same shapes, mask and statistics as an earlier one needs no checks, no schedule and no job
table: one native kernel, or PyTorch's kernel and a native one, fills new tensors. Calls with gradients, other
options or errors do not use this path.
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
from regard.engine.library import load
from regard.engine.native.attending import can_attend
from regard.engine.native.plans import MapPlan, RowPlan, map_plan, row_plan
from regard.engine.problem import Problem
from regard.engine.sdpa_backend.calls import SHORT
from regard.engine.sdpa_backend.short import suits
from regard.errors import StatisticError
from regard.masks import Mask
from regard.memo import Recent, key_of
from regard.stats import Frame, by_name

__all__ = ["short_observed"]

# Largest q.numel() of a planned call. In larger calls the kernels' time exceeds what a plan saves, and a plan
# keeps tensors of the size of the results in memory.
NUMBERS = 1 << 18
Seen = tuple[Problem, Tensor, Tensor, dict[str, Any]]


def short_observed(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, scale: float | None, statistics: tuple[object, ...]
) -> Seen | None:
    """The problem, output, log-sum-exp and statistics of a call; None if it needs the general path."""
    # Without statistics PyTorch's kernel attends, which rounds otherwise.
    if (
        not statistics
        or q.dtype != torch.float32
        or not suits(q, k, v)
        or max(q.shape[2], k.shape[2]) > SHORT
    ):
        return None
    if mask is not None:
        # Raises if the mask's tensor was written to since the mask was made; the cache of plans cannot tell.
        mask = mask.bind(*q.shape[:2])
        if mask.batch is not None:
            return None
    if q.numel() > NUMBERS or not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        return None
    packed = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    strides = None if packed else (q.stride(), k.stride(), v.stride())
    key = key_of((mask, *statistics))
    if key is None:
        return None
    shape = key, scale, q.shape, k.shape, strides
    like = _known.get(shape)
    if like is None:
        # Many calls are never repeated: the second of its kind makes the plan.
        _known[shape] = _Like(mask, scale, statistics, q.shape, k.shape, strides)
        return None
    plan = like.plan
    return None if plan is None or not finite(q, k, v) else plan.observe(q, k, v)


@dataclass(eq=False)
class _Like:
    """Calls with equal shapes, mask and statistics."""

    mask: Mask | None
    scale: float | None
    statistics: tuple[object, ...]
    q: torch.Size
    k: torch.Size
    strides: tuple[tuple[int, ...], ...] | None

    @cached_property
    def plan(self) -> RowPlan | MapPlan | None:
        """The plan for these calls; None if no plan can run them."""
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
        # A statistic read `frame.values`, which no plan provides.
        return None


_known: Recent[_Like] = Recent(64)
