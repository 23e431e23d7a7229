"""The keys that matter most to each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import State, Statistic
from regard.stats.checks import whole
from regard.stats.tile import Frame, MapTile

__all__ = ["TopK", "TopKeys"]

# Columns whose common maximum decides whether any of them is looked at.
GROUP = 16


class TopKeys(NamedTuple):
    """The heaviest keys of each query, heaviest first; weight 0 and key -1 where there are fewer."""

    weight: Float[Tensor, "batch heads q top"]
    key: Int64[Tensor, "batch heads q top"]


@dataclass(frozen=True)
class TopK(Statistic):
    """The k keys each query attends to most, and their weights: the k largest α_ij of each row.

    A `TopKeys` of two (batch, heads, q, k) tensors. Of equal weights the earlier key comes first. Keys of
    weight 0 are not listed.

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
        if self.k > frame.k:
            raise StatisticError(
                f"TopK(k={self.k}) asks for {self.k} keys of each query, and there are {frame.k}; "
                f"use TopK({max(frame.k, 1)}) or fewer."
            )

    def init(self, frame: Frame) -> State:
        shape = (frame.batch, frame.heads, frame.q, self.k)
        return {"weight": frame.zeros(*shape), "key": torch.full(shape, -1, device=frame.device)}

    def update(self, state: State, tile: MapTile) -> None:
        weight, key = tile.of_rows(state["weight"]), tile.of_rows(state["key"])
        width = tile.weights.shape[-1]
        aligned = width - width % GROUP
        for start, stop, group in ((0, aligned, GROUP), (aligned, width, 1)):
            if start < stop:
                cells = tile.weights[..., start:stop].unflatten(-1, (group, -1))
                self._fold(weight, key, cells, tile.cols.start + start)

    def merge(self, state: State, other: State) -> State:
        weight, key = (torch.cat([state[name], other[name]], -1) for name in ("weight", "key"))
        order = key.argsort(-1)
        weight, key = _heaviest(weight.gather(-1, order), key.gather(-1, order), self.k)
        return {"weight": weight, "key": key}

    def finish(self, state: State, frame: Frame) -> TopKeys:
        return TopKeys(state["weight"], state["key"])

    def _fold(
        self,
        weight: Float[Tensor, "batch heads q top"],
        key: Int64[Tensor, "batch heads q top"],
        cells: Float[Tensor, "batch heads q lanes groups"],
        first: int,
    ) -> None:
        """Fold in cells of which lane l of group g is key first + l * groups + g."""
        tops = cells.amax(-2)
        bar = _bar(weight[..., -1:], key[..., -1:], first)
        found = (tops > bar).nonzero(as_tuple=True)
        if len(found[0]) > 2 * tops[..., 0].numel() and tops.shape[-1] >= self.k:
            # Early tiles beat everything. The k-th largest group maximum is beaten by few cells of the tile.
            bar = torch.maximum(bar, _just_below(tops.topk(self.k).values[..., -1:]))
            found = (tops > bar).nonzero(as_tuple=True)
        if not len(found[0]):
            return
        *row, group = found
        lanes = cells[(*row, slice(None), group)]  # (found, lanes)
        pick, lane = (lanes > bar[tuple(row)]).nonzero(as_tuple=True)
        column = lane * tops.shape[-1] + group[pick]
        rows = _flat_rows(row, weight.shape)[pick]
        order = (rows * cells[0, 0, 0].numel() + column).argsort()  # by row, then by key
        _insert(weight, key, rows[order], lanes[pick, lane][order], column[order] + first)


def _bar(weight: Tensor, key: Tensor, first: int) -> Tensor:
    """What a weight at key `first` or a little after must exceed to displace the last of those listed."""
    # A tile's keys all lie on one side of a key that is not in the tile: they win ties, or they lose them.
    return torch.where(key > first, _just_below(weight), weight)


def _just_below(weight: Tensor) -> Tensor:
    return weight.nextafter(torch.full_like(weight, -1))


def _flat_rows(row: list[Tensor], shape: torch.Size) -> Tensor:
    batch, head, query = row
    return (batch * shape[1] + head) * shape[2] + query


def _insert(weight: Tensor, key: Tensor, row: Tensor, new_weight: Tensor, new_key: Tensor) -> None:
    """List new entries, which come sorted by row and key; the keys of a row are neighbours."""
    live, place, count = row.unique_consecutive(return_inverse=True, return_counts=True)
    slot = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[place]
    shape = (len(live), int(count.max()))
    fresh_weight, fresh_key = new_weight.new_full(shape, -1), new_key.new_full(shape, -1)
    fresh_weight[place, slot], fresh_key[place, slot] = new_weight, new_key

    index = torch.unravel_index(live, weight.shape[:3])
    old_weight, old_key = weight[index], key[index]
    # Listed keys before the tile, the tile's own, listed keys after it: so equal weights stand in key order.
    before = old_key < fresh_key[:, :1]
    weights = [old_weight.where(before, -1), fresh_weight, old_weight.masked_fill(before, -1)]
    weight[index], key[index] = _heaviest(
        torch.cat(weights, -1), torch.cat([old_key, fresh_key, old_key], -1), weight.shape[-1]
    )


def _heaviest(weight: Tensor, key: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k heaviest of entries in key order. A stable sort, because topk takes any of equal weights."""
    weight, order = weight.sort(dim=-1, descending=True, stable=True)
    return weight[..., :k], key.gather(-1, order[..., :k])
