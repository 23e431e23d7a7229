"""The heaviest columns and diagonals of a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.checks import at_most, whole
from regard.stats.diagonals import diagonals, of_diagonals, split_by_sign
from regard.stats.folds import ColumnFold, DiagonalFold, Fold
from regard.stats.tile import Frame, MapTile

__all__ = ["Lines", "VerticalSlash"]


class Lines(NamedTuple):
    """The heaviest columns and diagonals of a map, heaviest first, and the share of all weight on each."""

    keys: Int64[Tensor, "batch heads top"]
    key_share: Float[Tensor, "batch heads top"]
    distances: Int64[Tensor, "batch heads top"]
    distance_share: Float[Tensor, "batch heads top"]


@dataclass(frozen=True)
class VerticalSlash(Statistic):
    """The k heaviest columns and the k heaviest diagonals of each head (Jiang et al., 2024, MInference).

    A `Lines` of (batch, heads, k) tensors. A column's share is Σ_i α_ij / Σ α; a diagonal's is the same sum
    over i - j = d. A sparse pattern of these lines would keep these shares. On ties the earlier key and the
    shorter distance come first.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> lines = regard.observe(x, x, x, mask=regard.Causal(), stats=[VerticalSlash(1)]).vertical_slash
    >>> lines.keys.item(), lines.key_share.item(), lines.distances.item(), lines.distance_share.item()
    (0, 0.5208, 0, 0.5208)
    """

    k: int

    def __post_init__(self) -> None:
        whole(self, "k", self.k, 1)

    def check(self, frame: Frame) -> None:
        at_most(self, self.k, "columns", frame.k)

    def init(self, frame: Frame) -> State:
        return {
            "columns": frame.sums(frame.batch, frame.heads, frame.k),
            "diagonals": frame.sums(frame.batch, frame.heads, diagonals(frame)),
        }

    def update(self, state: State, tile: MapTile) -> None:
        tile.of_cols(state["columns"]).add_(tile.column_sums)
        of_diagonals(tile.of_heads(state["diagonals"]), tile).add_(tile.diagonal_sums)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [ColumnFold(state["columns"]), DiagonalFold(state["diagonals"])]

    def finish(self, state: State, frame: Frame) -> Lines:
        columns = state["columns"]
        total = columns.sum(-1, keepdim=True)
        total = total.where(total != 0, 1)
        before, after = split_by_sign(state["diagonals"], frame)
        distance = torch.cat([torch.arange(x.shape[-1], device=x.device) for x in (before, after)])
        distance[frame.k :] = -1 - distance[frame.k :]
        nearest = distance.abs().argsort(stable=True)
        # Without keys there are no lines.
        lines = min(self.k, frame.k)
        key_mass, keys = _heaviest(columns, lines)
        distance_mass, place = _heaviest(torch.cat([before, after], -1)[..., nearest], lines)
        return Lines(keys, key_mass / total, distance[nearest][place], distance_mass / total)


def _heaviest(mass: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest and their indices; on ties the first."""
    mass, order = mass.sort(dim=-1, descending=True, stable=True)
    return mass[..., :k], order[..., :k]
