"""Checks that inputs are finite, and small enough for finite scores."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LARGEST", "finite"]

# Below this, a dot product of two vectors is far from overflow; an overflow behind a mask is as harmful as
# NaN.
TAME = 1e18
# Up to this |lse|, its rounding error is small enough: at most 2e-6 in float32 and 4e-12 in float64.
LARGEST = {torch.float32: 2.0**6, torch.float64: 2.0**16}


def finite(*tensors: Tensor) -> bool:
    """Whether scores of these tensors are finite: no NaN, no inf, no numbers whose products overflow.

    >>> import torch
    >>> finite(torch.ones(3)), finite(torch.tensor([1.0, torch.nan]))
    (True, False)
    """
    for x in tensors:
        if not x.numel():
            continue
        low, high = (x.detach() if x.requires_grad else x).aminmax()
        # As Python numbers: for short texts, two tensor comparisons would take longer than the reductions.
        if not (-TAME < low.item() and high.item() < TAME):
            return False
    return True
