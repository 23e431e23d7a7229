"""The keys with the largest attention summed over heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.checks import at_most, whole
from regard.stats.folds import Fold, HeadSumFold
from regard.stats.tile import Frame, MapTile

__all__ = ["HeadSum", "SharedKeys", "heaviest"]

LAST_KEY = (1 << 31) - 1


class SharedKeys(NamedTuple):
    """The keys of the largest weight summed over heads, largest first; 0 and key -1 where there are fewer."""

    weight: Float[Tensor, "batch q top"]
    key: Int64[Tensor, "batch q top"]


@dataclass(frozen=True)
class HeadSum(Statistic):
    """The k keys of each query with the largest Σ_h α^h_ij: the targets of a sparse-attention indexer.

    A `SharedKeys` of two (batch, q, k) tensors. An indexer selects one set of keys for all heads, so its
    teacher is the sum over heads (DeepSeek-V3.2-Exp, 2025); `KL` compares a student with the whole row. On
    ties the earlier key comes first.

    >>> import torch, regard
    >>> q, k = torch.ones(1, 2, 1, 1), torch.tensor([[[[0.0], [2.0], [1.0]]]]).expand(1, 2, 3, 1)
    >>> shared = regard.observe(q, k, k, stats=[HeadSum(2)]).head_sum
    >>> shared.weight, shared.key
    (tensor([[[1.3305, 0.4895]]]), tensor([[[1, 2]]]))
    """

    needs_all_heads: ClassVar[bool] = True

    k: int

    def __post_init__(self) -> None:
        whole(self, "k", self.k, 1)

    def check(self, frame: Frame) -> None:
        at_most(self, self.k, "keys of each query", frame.k)

    def init(self, frame: Frame) -> State:
        shape = (frame.batch, frame.q, self.k)
        return {"weight": frame.zeros(*shape), "key": torch.full(shape, -1, device=frame.device)}

    def update(self, state: State, tile: MapTile) -> None:
        weights = tile.weights.sum(1)  # (batch, q, k)
        if weights.shape[-1] > self.k:
            weights, keys = heaviest(weights, self.k, tile.cols.start)
        else:
            keys = tile.k_pos.expand_as(weights)
        rows = slice(tile.rows.start, tile.rows.stop)
        listed = {name: x[tile.batch.start : tile.batch.stop, rows] for name, x in state.items()}
        merged = self.merge(listed, {"weight": weights, "key": keys})
        for name, x in listed.items():
            x.copy_(merged[name])

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [HeadSumFold(state["weight"], state["key"])]

    def merge(self, state: State, other: State) -> State:
        weight, key = (torch.cat([state[name], other[name]], -1) for name in ("weight", "key"))
        key = key.masked_fill(weight == 0, -1)
        by_key = key.argsort(-1)
        weight, key = weight.gather(-1, by_key), key.gather(-1, by_key)
        weight, order = weight.sort(dim=-1, descending=True, stable=True)
        return {"weight": weight[..., : self.k], "key": key.gather(-1, order[..., : self.k])}

    def finish(self, state: State, frame: Frame) -> SharedKeys:
        return SharedKeys(state["weight"], state["key"])


def heaviest(
    weights: Float[Tensor, "*rows k"], k: int, first: int
) -> tuple[Float[Tensor, "*rows top"], Int64[Tensor, "*rows top"]]:
    """The k largest weights of each row and their keys, of which the first is `first`; largest first, on ties
    the earlier key first.

    `topk` alone promises no order among equal weights. float32 weights that are not negative are ordered as
    their bits are, so the bits and the key in one number make all numbers of a row distinct. Selecting k of
    them takes a thirtieth of a stable sort.
    """
    if weights.dtype != torch.float32:
        weights, order = weights.sort(dim=-1, descending=True, stable=True)
        return weights[..., :k], order[..., :k] + first
    keys = torch.arange(first, first + weights.shape[-1], device=weights.device)
    numbers = weights.view(torch.int32).to(torch.int64) * (1 << 32) + (LAST_KEY - keys)
    tops = numbers.topk(k, dim=-1, sorted=True).values
    return (tops >> 32).to(torch.int32).view(torch.float32), LAST_KEY - (tops & LAST_KEY)
