"""Sums whose bits don't depend on the number of threads or on the memory layout."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["add_exp", "over_rows"]

# From 32768 numbers on, PyTorch splits a sum with a single result over threads.
LONE = 1 << 14


def add_exp(a: Float[Tensor, "*#shape"], b: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    """log(exp(a) + exp(b)), -inf where both are; `torch.logaddexp` rounds differently in other memory
    layouts.

    >>> add_exp(torch.tensor([0.0, -torch.inf]), torch.tensor([0.0, -torch.inf]))
    tensor([0.6931,   -inf])
    """
    high = torch.maximum(a, b)
    gap = (torch.minimum(a, b) - high).masked_fill_(high.isinf(), -torch.inf)
    return high + gap.exp_().log1p_()


def over_rows(x: Float[Tensor, "batch heads q"]) -> Float[Tensor, "heads"]:
    """One sum per head.

    >>> over_rows(torch.ones(2, 3, 5))
    tensor([10., 10., 10.])
    """
    return torch.stack([part.sum(-1) for part in x.sum(0).split(LONE, -1)]).sum(0)
