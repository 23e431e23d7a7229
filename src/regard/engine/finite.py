"""Checks that inputs are finite, and small enough for finite scores."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine.library import load

__all__ = ["LARGEST", "finite", "within"]

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
    return all(map(_finite, tensors))


def _finite(x: Tensor) -> bool:
    known = within(x, TAME)
    if known is not None:
        return known
    if not x.numel():
        return True
    low, high = (x.detach() if x.requires_grad else x).aminmax()
    # As Python numbers: for short texts, two tensor comparisons would take longer than the reductions.
    return -TAME < low.item() and high.item() < TAME


def within(x: Tensor, limit: float) -> bool | None:
    """Whether no number of a small tensor is NaN or larger than this; None if the tensor is not small.

    `aminmax` takes several times as long as a native kernel that reads some thousand numbers.

    >>> import torch
    >>> within(torch.ones(2, 2, 2), 1.0) is None
    True
    """
    if x.dtype != torch.float32 or type(x) is not Tensor or not x.is_cpu or x.dim() != 4 or x.numel() > SMALL:
        return None
    library = load()
    return None if isinstance(library, str) else library.within(x, limit)
