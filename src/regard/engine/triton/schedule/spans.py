"""The interval of keys that each row sees, for masks that have one."""

from __future__ import annotations

import torch
from jaxtyping import Int, Int32
from torch import Tensor
from torch.nn.functional import pad

from regard.masks import Mask

__all__ = ["Spans", "bounds", "spans_of"]

Spans = tuple[Int32[Tensor, "rows heads q"], Int32[Tensor, "rows heads q"]]


def spans_of(mask: Mask | None, q_len: int, k_len: int, offset: int, device: torch.device) -> Spans | None:
    """The start and stop of every row's interval; None if a row may have several.

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
    # Give a dead row an interval that doesn't intersect any block of keys.
    low, high = low.where(low < high, k_len), high.where(low < high, 0)
    return low.to(device, torch.int32).contiguous(), high.to(device, torch.int32).contiguous()


def bounds(
    low: Int[Tensor, "rows heads q"], high: Int[Tensor, "rows heads q"], k_len: int, block_q: int
) -> tuple[Tensor, ...]:
    """Per block of queries: start and stop of the keys that any query sees, and of those that all queries
    see.

    Heads share a schedule: a tile is visited if any head sees some of it, and full if all heads see all of
    it.
    """
    first, last = _by_block(low, block_q, k_len).amin(2), _by_block(high, block_q, 0).amax(2)
    return first, last, _by_block(low, block_q, 0).amax(2), _by_block(high, block_q, k_len).amin(2)


def _by_block(x: Int[Tensor, "rows heads q"], block: int, fill: int) -> Int[Tensor, "planes blocks cells"]:
    """The values of all heads in each block of queries; rows past the last count as `fill`."""
    whole = pad(x, (0, -x.shape[2] % block), value=fill)
    return whole.unflatten(2, (-1, block)).transpose(1, 2).flatten(2)
