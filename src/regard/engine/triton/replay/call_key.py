"""The key of a call: everything that its launches depend on, except the contents of its tensors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.engine.problem import Problem
from regard.memo import described

__all__ = ["call_key", "growing_key"]


def call_key(
    problem: Problem, more: Sequence[Tensor | None], asked: Hashable
) -> tuple[Hashable, list[Tensor]] | None:
    """The key of a call and its tensors; None if the key would contain something that can't be compared.

    The key is derived from all fields of the problem, its scoring, its mask and `asked`, so that a new field
    of one of them becomes part of the key by itself.
    """
    found = described((problem, tuple(more), asked), tensor_key)
    return None if found is None else ((found[0], _modes(problem)), found[1])


def growing_key(problem: Problem, asked: Hashable) -> tuple[Hashable, list[Tensor]] | None:
    """The same without the lengths of keys and values, which `asked` must cover as far as they matter."""
    p = replace(problem, k=problem.q, v=problem.q, offset=0)
    found = described((p, asked), tensor_key)
    if found is None:
        return None
    # The problem's fields come in order, and its first three are q, k and v.
    (q, _, _, *others), (k, v) = found[1], (problem.k, problem.v)
    about = [(x.dtype, x.device, x.data_ptr() % 16, x.requires_grad) for x in (k, v)]
    return (found[0], *about, _modes(problem)), [q, k, v, *others]


def _modes(problem: Problem) -> tuple[bool, bool, bool]:
    device = problem.q.device.type
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled(device)


def tensor_key(x: Tensor) -> Hashable:
    """Everything a kernel or a torch call may depend on, except a tensor's contents."""
    return (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16, x.requires_grad)
