"""Backend `torch`: attention in plain torch operations. It runs every call and defines the right result."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from regard.engine.backend import Backend, Gradients, Upstream
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.riding import RowRide, ride_of_rows
from regard.engine.torch_backend.backward import backward
from regard.engine.torch_backend.dense import dense_output
from regard.engine.torch_backend.forward import forward
from regard.stats import Frame, Statistic

__all__ = ["TorchBackend"]


class TorchBackend(Backend):
    """Streams over tiles on every device; its maps are read tile by tile."""

    name = "torch"
    has_backward = True

    def refusal(self, problem: Problem) -> None:
        return None

    def reason(self, problem: Problem, refused: str) -> str:
        return refused

    def forward(self, problem: Problem, riders: Riders) -> Streamed:
        return forward(problem, riders)

    def backward(self, problem: Problem, riders: Riders, result: Streamed, up: Upstream) -> Gradients:
        return backward(problem, riders.columns, result, up)

    def transformed(self, problem: Problem) -> Tensor:
        return dense_output(problem)

    def rides(
        self,
        problem: Problem,
        frame: Frame,
        statistics: Mapping[str, Statistic],
        differentiable: bool = False,
    ) -> RowRide:
        return ride_of_rows(problem, frame, statistics, differentiable)

    def reading(self, problem: Problem, refused: str) -> str:
        return f"torch operations: {refused}"
