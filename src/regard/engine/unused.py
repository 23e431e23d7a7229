"""Hides queries and keys that are in no visible pair from the projections of a score function.

The gradient of a projection's weights is a sum over all rows, so NaN in a padded row would make it NaN: 0 *
NaN is NaN.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.engine.finite import finite
from regard.engine.schedule import chunks, schedule
from regard.engine.scoring import Place
from regard.masks import Mask

__all__ = ["hide_unused"]

ROWS = 256
# The most pairs that are materialised at once, one byte each.
PAIRS = 1 << 24


def hide_unused(
    q: Float[Tensor, "batch heads q dim"], k: Float[Tensor, "batch kv_heads k k_dim"], mask: Mask
) -> tuple[Float[Tensor, "batch heads q dim"], Float[Tensor, "batch kv_heads k k_dim"]]:
    """q and k with zeros in rows that no visible pair uses, if q or k contain garbage.

    >>> from regard.masks import Padding
    >>> x = torch.tensor([[[[1.0], [torch.nan]]]])
    >>> hide_unused(x, x, Padding(torch.tensor([True, False])))[1].flatten()
    tensor([1., 0.])
    """
    if finite(q, k):
        return q, k
    of_q, of_k = _used(q, k, mask)
    if of_k.shape[1] > 1:
        # A key is used if any of the query heads that share it sees it.
        of_k = of_k.unflatten(1, (k.shape[1], -1)).any(2)
    return tuple(x.masked_fill(~used[..., None], 0.0) for x, used in ((q, of_q), (k, of_k)))  # pyright: ignore


def _used(
    q: Tensor, k: Tensor, mask: Mask
) -> tuple[Bool[Tensor, "#batch #heads q"], Bool[Tensor, "#batch #heads k"]]:
    """Which queries see a key, and which keys are seen by a query."""
    lead, (q_len, k_len) = (mask.batch or 1, mask.heads or 1), (q.shape[2], k.shape[2])
    of_q, of_k = (torch.zeros(*lead, n, dtype=torch.bool, device=q.device) for n in (q_len, k_len))
    ids, offset = (range(q.shape[0]), range(q.shape[1])), k_len - q_len
    step = max(1, PAIRS // (lead[0] * lead[1] * ROWS))
    for row in schedule(mask, q_len, k_len, ROWS, offset):
        rows = slice(row.queries.start, row.queries.stop)
        for run in row.full:
            of_q[..., rows] = True
            of_k[..., run.start : run.stop] = True
        for keys in (keys for run in row.partial for keys in chunks(run, step)):
            seen = Place(*ids, row.queries, keys, offset, q.device).allowed(mask)
            of_q[..., rows] |= seen.any(-1)
            of_k[..., keys.start : keys.stop] |= seen.any(-2)
    return of_q, of_k
