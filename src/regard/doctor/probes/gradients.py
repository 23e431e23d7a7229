"""Compares gradients with finite differences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.modules import ModuleSubject

__all__ = ["gradients"]

# Steps: a fine one for float64, a coarse one for code that computes in float32 inside. A gradient is wrong if
# it is wrong by both.
STEPS = ((1e-6, 1e-4), (1e-3, 2e-2))


def gradients(case: Case) -> None:
    """Compare the gradient along a random direction with a finite difference, in float64."""
    subject = case.subject
    if isinstance(subject, FunctionSubject) and not subject.numpy:
        inputs = dict(zip("qkv", subject.sample(dtype=torch.float64), strict=True))
        _compare(case, inputs, lambda given: subject.run(tuple(given.values())))
    elif isinstance(subject, ModuleSubject):
        double = copy.copy(subject)
        try:
            double.module = copy.deepcopy(subject.module).double()
        except Exception:
            return
        inputs = {"x": subject.sample(dtype=torch.float64)}
        inputs |= {
            name: p.detach()
            for name, p in double.module.named_parameters()
            if not is_lazy(p) and p.dim() == 2 and p.is_floating_point()
        }
        _compare(case, inputs, lambda given: _with_weights(double, given))


def _with_weights(subject: ModuleSubject, given: dict[str, Tensor]) -> Tensor:
    weights = {name: value for name, value in given.items() if name != "x"}
    module = subject.module
    subject.module = lambda *args, **kwargs: torch.func.functional_call(module, weights, args, kwargs)  # type: ignore
    try:
        return subject.run(given["x"])
    finally:
        subject.module = module


def _compare(case: Case, inputs: dict[str, Tensor], run: Callable[[dict[str, Tensor]], Any]) -> None:
    draw = torch.Generator().manual_seed(5)
    try:
        out = run(inputs)
    except Exception:
        return case.note("it does not run in float64; its gradients were not probed")
    if out.dtype != torch.float64 or not bool(out.isfinite().all()):
        return None
    weigh = torch.randn(out.shape, generator=draw, dtype=torch.float64)
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    try:
        with torch.enable_grad():
            loss = (run(leaves) * weigh).sum()
        found = (
            torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            if loss.requires_grad
            else None
        )
    except Exception as error:
        return case.find("broken-gradients", f"the backward pass raises {type(error).__name__}: {error}")
    wrong = []
    for index, (name, x) in enumerate(inputs.items()):
        way = torch.randn(x.shape, generator=draw, dtype=torch.float64)
        gradient = None if found is None else found[index]
        ours = 0.0 if gradient is None else float((gradient * way).sum())
        slope, right = 0.0, False
        for step, tolerance in STEPS:
            up, down = (run({**inputs, name: x + sign * step * way}) for sign in (1, -1))
            slope = float(((up - down) * weigh).sum()) / (2 * step)
            right |= abs(ours - slope) <= tolerance * max(abs(slope), 1.0)
        if not right:
            said = "no gradient" if gradient is None else f"{ours:.4g}"
            wrong.append(f"{name}: slope {slope:.4g}, {said}")
    if wrong:
        case.find("broken-gradients", "; ".join(wrong))
    return None
