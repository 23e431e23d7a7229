"""Arithmetic on tiles of positions, for closed forms of `cover`."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Int8, Int64
from torch import Tensor

__all__ = ["agreement", "offsets", "same_rank", "verdict"]


def verdict(full: Bool[Tensor, "*#tiles"], empty: Bool[Tensor, "*#tiles"]) -> Int8[Tensor, "*tiles"]:
    """The Coverage of tiles that are known to be full, empty, or neither.

    >>> verdict(torch.tensor([True, False, False]), torch.tensor([False, False, True]))
    tensor([2, 1, 0], dtype=torch.int8)
    """
    return full.to(torch.int8) + (~empty).to(torch.int8)


def offsets(
    q_start: Int64[Tensor, "*#tiles"],
    q_stop: Int64[Tensor, "*#tiles"],
    k_start: Int64[Tensor, "*#tiles"],
    k_stop: Int64[Tensor, "*#tiles"],
) -> tuple[Int64[Tensor, "*tiles"], Int64[Tensor, "*tiles"]]:
    """The least and the greatest k - q of each tile; every number between them occurs too.

    >>> low, high = offsets(*map(torch.tensor, (0, 2, 5, 6)))
    >>> int(low), int(high)
    (4, 5)
    """
    return k_start - (q_stop - 1), (k_stop - 1) - q_start


def agreement(coverage: Int8[Tensor, "rows *tiles"]) -> Int8[Tensor, "*tiles"]:
    """One Coverage for many batch rows: FULL or EMPTY only if it is that in every row.

    >>> agreement(torch.tensor([[2, 0, 0], [2, 0, 2]], dtype=torch.int8))
    tensor([2, 0, 1], dtype=torch.int8)
    """
    if not len(coverage):
        return coverage.new_zeros(coverage.shape[1:])  # EMPTY: no row has a pair
    low, high = coverage.amin(0), coverage.amax(0)
    return torch.where(low == high, low, torch.ones_like(low))


def same_rank(q: Int[Tensor, "..."], k: Int[Tensor, "..."]) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
    """q and k with as many dimensions as the larger of them, so that dimensions in front stay in front.

    >>> [tuple(x.shape) for x in same_rank(torch.arange(3), torch.arange(2)[:, None])]
    [(1, 3), (2, 1)]
    """
    rank = max(q.ndim, k.ndim)
    return q.view((1,) * (rank - q.ndim) + q.shape), k.view((1,) * (rank - k.ndim) + k.shape)
