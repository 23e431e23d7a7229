"""The key of a call: everything that its launches depend on, except the contents of its tensors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from regard.engine.problem import Problem
from regard.memo import described

__all__ = ["call_key"]


def call_key(
    problem: Problem, more: Sequence[Tensor | None], asked: Hashable
) -> tuple[Hashable, list[Tensor]] | None:
    """The key of a call and its tensors; None if the key would contain something that can't be compared.

    The key is derived from all fields of the problem, its scoring, its mask and `asked`, so that a new field
    of one of them becomes part of the key by itself.
    """
    device = problem.q.device.type
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled(device))
    found = described((problem, tuple(more), asked), tensor_key)
    return None if found is None else ((found[0], modes), found[1])


def tensor_key(x: Tensor) -> Hashable:
    """Everything a kernel or a torch call may depend on, except a tensor's contents."""
    return (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16, x.requires_grad)
