"""The native kernels as a helper backend: they read maps on the CPU, and observe in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine import native
from regard.engine.backend import Backend, Gradients, Upstream
from regard.engine.finite import finite
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.riding import RowRide, ride_of_rows
from regard.engine.sdpa_backend.kernels import backward
from regard.engine.sdpa_backend.support import wants_float32
from regard.masks import Mask
from regard.stats import Frame, State, Statistic, folds_of

__all__ = ["NativeBackend"]


class NativeBackend(Backend):
    """Kernels in C for the CPU. They run calls of the `sdpa` backend that ask for statistics."""

    name = "native"
    helper = True
    has_backward = True

    def refusal(self, problem: Problem) -> str | None:
        return native.refusal(problem)

    def reading(self, problem: Problem, refused: str) -> str:
        return native.explain()

    def wants_float32(self, problem: Problem) -> bool:
        return wants_float32(problem)

    def forward(self, problem: Problem, riders: Riders) -> Streamed:
        return native.attend(problem, riders)

    def backward(self, problem: Problem, riders: Riders, result: Streamed, up: Upstream) -> Gradients | None:
        if up.lse is not None or up.columns is not None or up.entropy is not None:
            return None
        return Gradients(*backward(problem, result.out, result.lse, up.out.contiguous()))

    def rides(
        self,
        problem: Problem,
        frame: Frame,
        statistics: Mapping[str, Statistic],
        differentiable: bool = False,
    ) -> RowRide | None:
        if not native.can_attend(problem, []):
            return None
        ride = ride_of_rows(problem, frame, statistics, differentiable)
        return ride if finite(*ride.columns.values()) else None

    def short_observed(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        scale: float | None,
        statistics: tuple[object, ...],
    ) -> tuple[Problem, Tensor, Tensor, dict[str, Any]] | None:
        return native.short_observed(q, k, v, mask, scale, statistics)

    def fold(
        self,
        problem: Problem,
        lse: Float[Tensor, "batch heads q"],
        frame: Frame,
        statistics: Mapping[str, Statistic],
        streamed: Streamed | None,
        named: bool,
    ) -> tuple[dict[str, State], set[str]]:
        states = {name: statistic.init(frame) for name, statistic in statistics.items()}
        # The kernels rely on scores that are finite or -inf; torch operations handle the others.
        if not bool((lse < torch.inf).all()):
            return states, set()
        found = {name: folds_of(s, states[name], frame) for name, s in statistics.items()}
        folds = {name: each for name, each in found.items() if each is not None and native.can_fold(each)}
        native.fold(problem, lse, frame, [fold for each in folds.values() for fold in each])
        return states, set(folds)
