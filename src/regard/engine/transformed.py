"""Detects tracing, transforms of `torch.func` and forward-mode differentiation.

Transforms hide the numbers of tensors, which kernels and tile loops read to choose their path. PyTorch can
transform plain torch operations in any combination, so inside transforms the whole map is built.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.engine.captured import answers
from regard.engine.problem import Problem
from regard.errors import BackendError

__all__ = ["REFUSED", "is_traced", "is_transformed", "is_wrapped", "may_be_transformed"]

_MODES = torch._C._TorchDispatchModeKey
TRACERS = (_MODES.FAKE, _MODES.PROXY, _MODES.FUNCTIONAL)

REFUSED = "inside torch.func transforms (grad, jacrev, vmap, jvp) and forward-mode differentiation"


def is_traced(q: Tensor) -> bool:
    """Whether a compiler, an exporter or another tracer is active, or the tensors are fake.

    Inside transforms of torch.func, tracers see plain torch operations. TorchScript's tracer is refused.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.is_dynamo_compiling() or not torch._C._are_functorch_transforms_active()
    if torch._C._get_tracing_state() is not None:
        raise BackendError(
            "torch.jit.trace cannot follow regard, which reads lengths as Python numbers. Use torch.export "
            "or torch.compile."
        )
    if torch._C._len_torch_dispatch_stack() and any(torch._C._get_dispatch_mode(key) for key in TRACERS):
        return not torch._C._are_functorch_transforms_active()
    return type(q) is not Tensor and hasattr(q, "fake_mode")


def is_transformed(problem: Problem) -> bool:
    """Whether a transform hides the numbers of an input, or an input carries a tangent."""
    if not may_be_transformed():
        return False
    given = (problem.q, problem.k, problem.v, problem.sink, *problem.scoring.parameters())
    if any(x is not None and _is_hidden(x) for x in given):
        return True
    return any(map(_is_hidden, answers(problem.scoring, problem.q, problem.k).values()))


def may_be_transformed() -> bool:
    """Whether any transform is active, for any tensors; faster than `is_transformed`."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_wrapped(x: Tensor) -> bool:
    """Whether a transform of torch.func hides the numbers of a tensor."""
    # A compiler cannot follow the question, and compiles no transforms here.
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.is_functorch_wrapped_tensor(x)  # pyright: ignore[reportAttributeAccessIssue]


def _is_hidden(x: Tensor) -> bool:
    return is_wrapped(x) or forward_ad.unpack_dual(x).tangent is not None
