"""Checks that inputs are finite, and small enough for finite scores."""

from __future__ import annotations

from torch import Tensor

__all__ = ["finite"]

# Below this, a dot product of two vectors is far from overflow; an overflow behind a mask is as harmful as
# NaN.
TAME = 1e18


def finite(*tensors: Tensor) -> bool:
    """Whether scores of these tensors are finite: no NaN, no inf, no numbers whose products overflow.

    >>> import torch
    >>> finite(torch.ones(3)), finite(torch.tensor([1.0, torch.nan]))
    (True, False)
    """
    bounds = (x.detach().aminmax() for x in tensors if x.numel())
    # Compare as Python numbers: for short texts, two tensor comparisons would take longer than the
    # reductions.
    return all(-TAME < float(low) and float(high) < TAME for low, high in bounds)
