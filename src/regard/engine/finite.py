"""Checks that inputs are finite, and small enough for finite scores."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine.library import load

__all__ = ["LARGEST", "finite"]

# Below this, a dot product of two vectors is far from overflow; an overflow behind a mask is as harmful as
# NaN.
TAME = 1e18
# The most numbers that are read on one thread: PyTorch takes several for more.
SMALL = 1 << 17
# Up to this |lse|, its rounding error is small enough: at most 2e-6 in float32 and 4e-12 in float64.
LARGEST = {torch.float32: 2.0**6, torch.float64: 2.0**16}


def finite(*tensors: Tensor) -> bool:
    """Whether scores of these tensors are finite: no NaN, no inf, no numbers whose products overflow.

    >>> import torch
    >>> finite(torch.ones(3)), finite(torch.tensor([1.0, torch.nan]))
    (True, False)
    """
    library = load()
    for x in tensors:
        if not isinstance(library, str) and _is_small(x):
            if not library.within(x, TAME):
                return False
        elif x.numel():
            low, high = (x.detach() if x.requires_grad else x).aminmax()
            # As Python numbers: for short texts, two tensor comparisons take longer than the reductions.
            if not (-TAME < low.item() and high.item() < TAME):
                return False
    return True


def _is_small(x: Tensor) -> bool:
    """Whether a native kernel reads a tensor in a fraction of the time that `aminmax` takes."""
    return x.dtype is torch.float32 and type(x) is Tensor and x.is_cpu and x.dim() == 4 and x.numel() <= SMALL
