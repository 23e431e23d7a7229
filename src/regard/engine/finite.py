"""Whether numbers are finite, and small enough that scores made of them are."""

from __future__ import annotations

from torch import Tensor

__all__ = ["finite"]

# Below this a dot product of two vectors is far from overflow. An infinity behind a mask is as harmful as
# NaN.
TAME = 1e18


def finite(*tensors: Tensor) -> bool:
    """Whether scores made of these are finite: no NaN, no inf, nothing so large that products overflow.

    >>> import torch
    >>> finite(torch.ones(3)), finite(torch.tensor([1.0, torch.nan]))
    (True, False)
    """
    bounds = (x.detach().aminmax() for x in tensors if x.numel())
    # Compared as Python numbers: for short texts two tensor comparisons would cost more than the reductions.
    return all(-TAME < float(low) and float(high) < TAME for low, high in bounds)
