"""Backend `sdpa`: PyTorch's fused kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine.backend import Backend, Gradients, Upstream
from regard.engine.few_rows import few_rows
from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.sdpa_backend.kernels import backward, forward, plain
from regard.engine.sdpa_backend.short import short_output
from regard.engine.sdpa_backend.support import is_plain, refusal, wants_float32
from regard.masks import Mask

__all__ = ["SdpaBackend"]


class SdpaBackend(Backend):
    """PyTorch's fused kernels. They compute no statistics and read no maps."""

    name = "sdpa"
    has_backward = True
    reads = False
    without_riders = "PyTorch's kernels bring none along"

    def refusal(self, problem: Problem) -> str | None:
        return refusal(problem)

    def reason(self, problem: Problem, refused: str) -> str:
        how = "in one call" if is_plain(problem) else "block by block over the visible keys"
        return f"PyTorch's fused kernel, {how}"

    def wants_float32(self, problem: Problem) -> bool:
        return wants_float32(problem)

    def forward(self, problem: Problem, riders: Riders) -> Streamed:
        return Streamed(*forward(problem))

    def output(self, problem: Problem) -> Tensor | None:
        if not is_plain(problem) or problem.sink is not None or _learns_here(problem):
            return None
        return self.plain(problem)

    def short(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, scale: float | None
    ) -> Tensor | None:
        return short_output(q, k, v, mask, scale)

    def plain(self, problem: Problem) -> Tensor:
        """The output of a plain problem, by PyTorch's own function."""
        return plain(problem)

    def transformed(self, problem: Problem) -> Tensor | None:
        if not is_plain(problem) or problem.sink is not None:
            return None
        try:
            return plain(problem)
        except NotImplementedError:
            return None  # its kernels have no forward-mode derivative

    def backward(self, problem: Problem, riders: Riders, result: Streamed, up: Upstream) -> Gradients | None:
        # PyTorch's operator accepts no gradient of lse. The streamed backward does, and is as exact.
        if up.lse is not None or up.columns is not None or up.entropy is not None:
            return None
        return Gradients(*backward(problem, result.out, result.lse, up.out.contiguous()))


def _learns_here(problem: Problem) -> bool:
    """Whether PyTorch's own backward would not be exact enough for the required gradients."""
    inputs = (problem.q, problem.k, problem.v)
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in inputs):
        return False
    return few_rows(problem) or (not problem.q.is_cuda and not torch.compiler.is_compiling())
