"""`is_causal`, PyTorch's flag, accepted for equal lengths, where it is unambiguous."""

from __future__ import annotations

from torch import Tensor

from regard.errors import MaskError
from regard.masks import Causal, Mask

__all__ = ["with_causal"]


def with_causal(mask: Mask | None, q: Tensor, k: Tensor) -> Mask:
    """The mask of `is_causal=True`, joined with `mask`; refused where q and k have different lengths.

    >>> import torch
    >>> with_causal(None, torch.zeros(3, 8), torch.zeros(3, 8))
    Causal()
    """
    queries, keys = (x.shape[-2] if isinstance(x, Tensor) and x.ndim > 1 else 0 for x in (q, k))
    if queries != keys:
        raise MaskError(
            f"is_causal=True is ambiguous for {queries} queries and {keys} keys: PyTorch aligns the first "
            "query with the first key, and regard the last with the last. Write mask=Causal() for regard's "
            "rule, or call regard.sdpa(q, k, v, is_causal=True) for PyTorch's."
        )
    return Causal() if mask is None else mask & Causal()
