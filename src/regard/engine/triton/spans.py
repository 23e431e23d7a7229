"""A mask whose rows each see one interval of keys, as the two ends of every row's interval."""

from __future__ import annotations

import torch
from jaxtyping import Int32
from torch import Tensor

from regard.masks import Mask

__all__ = ["Spans", "spans_of"]

Spans = tuple[Int32[Tensor, "rows heads q"], Int32[Tensor, "rows heads q"]]


def spans_of(mask: Mask | None, q_len: int, k_len: int, offset: int, device: torch.device) -> Spans | None:
    """Where each row's interval begins and where it ends; None where a row may have several.

    >>> from regard.masks import Causal
    >>> low, high = spans_of(Causal(), 3, 3, 0, torch.device("cpu"))
    >>> high.tolist()
    [[[1, 2, 3]]]
    """
    q_pos = torch.arange(q_len) + offset
    spans = (torch.zeros_like(q_pos), torch.full_like(q_pos, k_len)) if mask is None else mask.spans(q_pos)
    if spans is None:
        return None
    low, high = (edge.clamp(0, k_len) for edge in torch.broadcast_tensors(*spans))
    low, high = (x.view((1,) * (3 - x.ndim) + tuple(x.shape)) for x in (low, high))
    # A row that sees nothing has one interval that is empty everywhere.
    low, high = low.where(low < high, k_len), high.where(low < high, 0)
    return low.to(device, torch.int32).contiguous(), high.to(device, torch.int32).contiguous()
