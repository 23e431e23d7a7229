"""The mask of a text that a model read in several calls, joined from the masks of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.masks import Causal, Dense, Mask

__all__ = ["Part", "cropped", "joined_mask"]


class Part(NamedTuple):
    """The mask of one call, which had so many queries, and all keys up to the last query's."""

    mask: Mask | None
    q: int
    k: int


def joined_mask(parts: Sequence[Part]) -> Mask | None:
    """The mask of all queries; later ones have keys that earlier ones could not see.

    >>> joined_mask([Part(Causal(), 5, 5), Part(None, 1, 6), Part(None, 1, 7)])
    Causal()
    """
    if len(parts) == 1:
        return parts[0].mask
    if all(isinstance(part.mask, Causal) or (part.mask is None and part.q == 1) for part in parts):
        return Causal()
    keys = parts[-1].k
    rows = [_matrix(part) for part in parts]
    lead = torch.broadcast_shapes(*(each.shape[:2] for each in rows))
    wide = [torch.nn.functional.pad(each, (0, keys - each.shape[-1])).expand(*lead, -1, -1) for each in rows]
    return Dense(torch.cat(wide, 2))


def cropped(part: Part, rows: int) -> Mask | None:
    """The mask of the first `rows` queries and the keys up to theirs."""
    if part.mask is None or isinstance(part.mask, Causal):
        return part.mask
    return Dense(_matrix(part)[:, :, :rows, : part.k - (part.q - rows)])


def _matrix(part: Part) -> Bool[Tensor, "batch heads q k"]:
    if part.mask is None:
        return torch.ones(1, 1, part.q, part.k, dtype=torch.bool)
    found = part.mask.dense(part.q, part.k)
    return found.view((1,) * (4 - found.ndim) + tuple(found.shape)).cpu()
