"""The heaviest keys of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.checks import at_most, whole
from regard.stats.folds import Fold, TopKeysFold
from regard.stats.tile import Frame, MapTile

__all__ = ["TopK", "TopKeys"]

# Columns per group, as far apart as possible: only groups whose maximum exceeds the bar are searched.
LANES = 32

# Subtracted from keys to pack them; even for the key -1 of an empty place the result fits into 32 bits.
LAST = 2**32 - 2


class TopKeys(NamedTuple):
    """The heaviest keys of each query, heaviest first; weight 0 and key -1 where there are fewer."""

    weight: Float[Tensor, "batch heads q top"]
    key: Int64[Tensor, "batch heads q top"]


@dataclass(frozen=True)
class TopK(Statistic):
    """The k heaviest keys of each query and their weights: the k largest α_ij of each row.

    A `TopKeys` of two (batch, heads, q, k) tensors. On ties the earlier key comes first. Keys of weight 0 are
    not listed.

    >>> import torch, regard
    >>> q, k = torch.ones(1, 1, 1, 1), torch.tensor([[[[0.0], [2.0], [1.0]]]])
    >>> seen = regard.observe(q, k, k, stats=[TopK(2)])
    >>> seen.top_k.weight, seen.top_k.key
    (tensor([[[[0.6652, 0.2447]]]]), tensor([[[[1, 2]]]]))
    """

    k: int

    def __post_init__(self) -> None:
        whole(self, "k", self.k, 1)

    def check(self, frame: Frame) -> None:
        at_most(self, self.k, "keys of each query", frame.k)

    def init(self, frame: Frame) -> State:
        shape = (frame.batch, frame.heads, frame.q, self.k)
        return {"weight": frame.zeros(*shape), "key": torch.full(shape, -1, device=frame.device)}

    def update(self, state: State, tile: MapTile) -> None:
        weight, key = tile.of_rows(state["weight"]), tile.of_rows(state["key"])
        weights = tile.weights.contiguous()
        width = weights.shape[-1]
        aligned = width - width % LANES
        for cols, lanes in ((range(aligned), LANES), (range(aligned, width), 1)):
            if len(cols):
                bar = _bar(weight[..., -1:], key[..., -1:], tile.cols.start + cols.start)
                found = self._candidates(weights, cols, lanes, bar)
                if len(found):
                    row, col = found // width, found % width
                    _insert(weight, key, row, weights.view(-1)[found], tile.cols.start + col)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [TopKeysFold(state["weight"], state["key"])]

    def merge(self, state: State, other: State) -> State:
        weight, key = (torch.cat([state[name], other[name]], -1) for name in ("weight", "key"))
        order = key.argsort(-1)
        weight, key = _heaviest(weight.gather(-1, order), key.gather(-1, order), self.k)
        return {"weight": weight.contiguous(), "key": key}

    def finish(self, state: State, frame: Frame) -> TopKeys:
        # Clamp to 1: a score may be rounded differently than in the forward pass.
        return TopKeys(state["weight"].clamp_(max=1.0), state["key"])

    def _candidates(
        self,
        weights: Float[Tensor, "batch heads q k"],
        cols: range,
        lanes: int,
        bar: Float[Tensor, "batch heads q 1"],
    ) -> Int64[Tensor, " found"]:
        """The cells that may be among the k heaviest of their row, as rising offsets in the tile's memory."""
        cells = weights[..., cols.start : cols.stop]
        tops = cells.unflatten(-1, (lanes, -1)).amax(-2)  # (batch, heads, q, groups)
        found = (tops > bar).view(-1).nonzero().squeeze(-1)
        rows, groups = tops.shape[:3].numel(), tops.shape[-1]
        if len(found) > min(self.k, groups // 2) * rows and len(cols) >= self.k:
            # The first tiles beat an empty list. The least of the maxima of any k parts of a row is at most
            # its k-th largest cell: use it as the bar, which is cheaper than the k-th largest and little
            # lower.
            some = tops if groups >= self.k else cells
            each = some.shape[-1] // self.k
            parts = some[..., : self.k * each].unflatten(-1, (each, self.k))
            bar = torch.maximum(bar, _just_below(parts.amax(-2).amin(-1, keepdim=True)))
            found = (tops > bar).view(-1).nonzero().squeeze(-1)
        if not len(found):
            return found
        row, group = found // groups, found % groups
        steps = torch.arange(0, len(cols), groups, device=found.device)
        places = (row * weights.shape[-1] + cols.start + group)[:, None] + steps  # (found, lanes)
        return places[weights.view(-1)[places] > bar.view(-1)[row, None]].sort().values


def _bar(weight: Tensor, key: Tensor, first: int) -> Tensor:
    """The weight that a key at or shortly after `first` must exceed to enter the list."""
    # All keys of a tile are either before or after a listed key, so they all win or all lose ties with it.
    return torch.where(key > first, _just_below(weight), weight)


def _just_below(weight: Tensor) -> Tensor:
    return weight.nextafter(torch.full_like(weight, -1))


def _insert(weight: Tensor, key: Tensor, row: Tensor, new_weight: Tensor, new_key: Tensor) -> None:
    """Insert new entries, sorted by row and key, into the lists."""
    live, place, count = row.unique_consecutive(return_inverse=True, return_counts=True)
    slot = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[place]
    shape = (len(live), int(count.max()))
    fresh_weight, fresh_key = new_weight.new_full(shape, -1), new_key.new_full(shape, -1)
    fresh_weight[place, slot], fresh_key[place, slot] = new_weight, new_key

    listed_weight, listed_key = weight.flatten(0, 2), key.flatten(0, 2)  # copies only if need be
    old_weight, old_key = listed_weight[live], listed_key[live]
    # Concatenate listed keys before the tile, the tile's own, and those after it, so that ties are in key
    # order.
    before = old_key < fresh_key[:, :1]
    weights = [old_weight.where(before, -1), fresh_weight, old_weight.masked_fill(before, -1)]
    listed_weight[live], listed_key[live] = _heaviest(
        torch.cat(weights, -1), torch.cat([old_key, fresh_key, old_key], -1), weight.shape[-1]
    )
    for target, listed in ((weight, listed_weight), (key, listed_key)):
        if listed.data_ptr() != target.data_ptr():
            target.copy_(listed.view_as(target))


def _heaviest(weight: Tensor, key: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k heaviest of entries in key order, on ties the earlier keys, which topk doesn't guarantee."""
    if weight.dtype == torch.float32 and weight.device.type == "cpu":
        return _heaviest_packed(weight, key, k)
    weight, order = weight.sort(dim=-1, descending=True, stable=True)
    return weight[..., :k], key.gather(-1, order[..., :k])


def _heaviest_packed(weight: Tensor, key: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same with weight and key packed in one integer, as the bits of positive floats sort like the
    floats."""
    packed = (weight.view(torch.int32).long() << 32) | (LAST - key)
    top = packed.topk(k, sorted=True).values
    return (top >> 32).int().view(torch.float32), LAST - (top & 0xFFFFFFFF)
