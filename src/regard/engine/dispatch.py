"""Which backend runs a call, and why."""

from __future__ import annotations

from dataclasses import dataclass

from regard.engine import sdpa_backend as fused
from regard.engine import triton as gpu
from regard.engine.problem import Problem
from regard.engine.torch_forward import finite
from regard.errors import BackendError

__all__ = ["BACKENDS", "Dispatch", "choose"]

BACKENDS = ("auto", "sdpa", "torch", "triton")


@dataclass(frozen=True)
class Dispatch:
    """The backend of a call and the reason for it; and what reads its map, should somebody observe it."""

    backend: str
    reason: str
    second_pass: str = ""

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason}"


def choose(problem: Problem, backend: str) -> Dispatch:
    """Pick a backend for `auto`; a named backend is taken or refused, never swapped."""
    if backend not in BACKENDS:
        names = ", ".join(repr(name) for name in BACKENDS)
        raise BackendError(f"backend={backend!r} is unknown; regard has {names}.")
    if backend == "torch":
        return Dispatch("torch", "asked for by name")
    if backend == "triton":
        refusal = gpu.refusal(problem)
        if refusal is not None:
            raise BackendError(f"backend='triton' cannot run this call: {refusal}. Use backend='torch'.")
        return Dispatch("triton", "asked for by name")
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
        return _without_sdpa(problem, refusal)
    how = "in one call" if fused.is_plain(problem) else "block by block over the visible keys"
    return Dispatch("sdpa", f"PyTorch's fused kernel, {how}")


def _without_sdpa(problem: Problem, refusal: str) -> Dispatch:
    """Kernels of our own where they run, else torch operations; off the GPU nobody asks about the GPU."""
    if not problem.q.is_cuda:
        return Dispatch("torch", refusal)
    why = gpu.refusal(problem)
    if why is None:
        return Dispatch("triton", f"fused kernels for what PyTorch's do not do: {refusal}")
    return Dispatch("torch", f"{refusal}; the triton backend: {why}")


def _leaks(problem: Problem) -> bool:
    """Whether there is garbage that the mask must hold back.

    Off the CPU nobody looks: every call would wait for the device, and only plain causal ones go to PyTorch.
    """
    if problem.mask is None or problem.q.device.type != "cpu":
        return False
    return not finite(problem.q, problem.k, problem.v)
