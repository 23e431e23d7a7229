"""Which backend runs a call, and why."""

from __future__ import annotations

from dataclasses import dataclass

from regard.engine import sdpa_backend as fused
from regard.engine.problem import Problem
from regard.engine.torch_forward import finite
from regard.errors import BackendError

__all__ = ["BACKENDS", "Dispatch", "choose"]

BACKENDS = ("auto", "sdpa", "torch")


@dataclass(frozen=True)
class Dispatch:
    """The backend of a call and the reason for it."""

    backend: str
    reason: str

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason}"


def choose(problem: Problem, backend: str) -> Dispatch:
    """Pick a backend for `auto`; a named backend is taken or refused, never swapped."""
    if backend not in BACKENDS:
        names = ", ".join(repr(name) for name in BACKENDS)
        raise BackendError(f"backend={backend!r} is unknown; regard has {names}.")
    if backend == "torch":
        return Dispatch("torch", "asked for by name")
    refusal = fused.refusal(problem)
    if refusal is None and _leaks(problem):
        refusal = (
            "q, k or v hold NaN, inf or numbers whose products overflow, and PyTorch's kernels would let "
            "those through the mask"
        )
    if backend == "sdpa":
        if refusal is not None:
            raise BackendError(f"backend='sdpa' cannot run this call: {refusal}. Use backend='torch'.")
        return Dispatch("sdpa", "asked for by name")
    if refusal is not None:
        return Dispatch("torch", refusal)
    how = "in one call" if fused.is_plain(problem) else "block by block over the visible keys"
    return Dispatch("sdpa", f"PyTorch's fused kernel, {how}")


def _leaks(problem: Problem) -> bool:
    """Whether there is garbage that the mask must hold back.

    Off the CPU nobody looks: every call would wait for the device, and only plain causal ones go to PyTorch.
    """
    if problem.mask is None or problem.q.device.type != "cpu":
        return False
    return not finite(problem.q, problem.k, problem.v)
