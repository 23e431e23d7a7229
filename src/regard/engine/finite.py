"""Whether numbers are finite, and small enough that scores made of them are."""

from __future__ import annotations

from torch import Tensor

__all__ = ["finite"]

# Below this a dot product of two vectors is far from overflow; inf behind a mask is as bad as NaN.
TAME = 1e18


def finite(*tensors: Tensor) -> bool:
    """Whether scores made of these are finite: no NaN, no inf, nothing so large that products overflow.

    >>> import torch
    >>> finite(torch.ones(3)), finite(torch.tensor([1.0, torch.nan]))
    (True, False)
    """
    bounds = (x.detach().aminmax() for x in tensors if x.numel())
    # Compared as numbers: a tensor operation for each comparison would cost more than looking at short texts.
    return all(-TAME < float(low) and float(high) < TAME for low, high in bounds)
