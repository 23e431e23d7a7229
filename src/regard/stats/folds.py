"""Sums that kernels compute over the cells of a map, and the tensors of a state that receive them.

A statistic whose `update` computes such sums returns them from `folds`; a pass with kernels for them doesn't
call `update`. Folds are over the weights w_ij = exp(s_ij - lse_i), 0 where the mask forbids. Sums are added
to the targets; maxima replace smaller values.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor

from regard.stats.student import Student

__all__ = [
    "BinFold",
    "BlockFold",
    "ColumnFold",
    "ColumnMaxFold",
    "DiagonalFold",
    "DistanceFold",
    "DivergenceFold",
    "EntropyFold",
    "Fold",
    "HeadSumFold",
    "KLFold",
    "MaxScoreFold",
    "MixFold",
    "PairFold",
    "TopKeysFold",
]


class Fold:
    """One sum or maximum. Folds of one type with equal `about` have the same result, computed once."""

    @property
    def about(self) -> Hashable:
        """The settings in which two folds of one type may differ."""
        return None


@dataclass(frozen=True)
class EntropyFold(Fold):
    """-Σ_j w_ij log w_ij."""

    into: Float[Tensor, "batch heads q"]


@dataclass(frozen=True)
class DistanceFold(Fold):
    """Σ_j w_ij (position of i - position of j)."""

    into: Float[Tensor, "batch heads q"]


@dataclass(frozen=True)
class MaxScoreFold(Fold):
    """max_j s_ij and its key, the first on ties."""

    value: Float[Tensor, "batch heads q"]
    key: Int64[Tensor, "batch heads q"]


@dataclass(frozen=True)
class MixFold(Fold):
    """Σ_j w_ij g_j for a few columns g. `stop`, if known, is the key from which on g is 0."""

    into: Float[Tensor, "batch heads q extra"]
    columns: Float[Tensor, "batch heads k extra"]
    stop: int | None = None


@dataclass(frozen=True)
class TopKeysFold(Fold):
    """The largest weights of each row, without zeros, and their keys; largest first, on ties the earlier
    key."""

    weight: Float[Tensor, "batch heads q top"]
    key: Int64[Tensor, "batch heads q top"]

    @property
    def about(self) -> Hashable:
        return self.weight.shape[-1]


@dataclass(frozen=True)
class ColumnFold(Fold):
    """Σ_i r_i w_ij with r_i = 1 by default, for the keys from `first` on that fit into `into`."""

    into: Float[Tensor, "batch heads some"]
    rows: Float[Tensor, "batch heads q"] | None = None
    first: int = 0

    @property
    def about(self) -> Hashable:
        return None if self.rows is None else id(self.rows)


@dataclass(frozen=True)
class ColumnMaxFold(Fold):
    """max_i w_ij of each key."""

    into: Float[Tensor, "batch heads k"]


@dataclass(frozen=True)
class DiagonalFold(Fold):
    """Sums along the diagonals of the map without its first `skip` keys, ordered as in stats/diagonals.py.

    With `past` the diagonals of keys after the query are not needed, and may be left out.
    """

    into: Float[Tensor, "batch heads diagonals"]
    skip: int = 0
    past: bool = False

    @property
    def about(self) -> Hashable:
        return self.skip


@dataclass(frozen=True)
class BlockFold(Fold):
    """The sum or the largest weight of each block of size × size cells, or both."""

    size: int
    sums: Float[Tensor, "batch heads q_blocks k_blocks"] | None = None
    maxima: Float[Tensor, "batch heads q_blocks k_blocks"] | None = None

    @property
    def about(self) -> Hashable:
        return self.size


@dataclass(frozen=True)
class BinFold(Fold):
    """For every weight (or score) and every border that it reaches: move one count to the next bin."""

    into: Int64[Tensor, "batch heads bins"]
    borders: tuple[float, ...]
    of: str = "weight"

    @property
    def about(self) -> Hashable:
        return self.of, self.borders


@dataclass(frozen=True)
class DivergenceFold(Fold):
    """For heads h < h' the sum over rows of H((w^h + w^h') / 2) - (H(w^h) + H(w^h')) / 2; H is -Σ_j w log w.

    Also the mass Σ_j w_ij of each row. The sum includes rows that see nothing in one of the heads.
    """

    into: Float[Tensor, "batch heads heads"]
    mass: Float[Tensor, "batch heads q"]


@dataclass(frozen=True)
class HeadSumFold(Fold):
    """The largest Σ_h w^h_ij of each row, without zeros, and their keys; largest first, on ties the earlier
    key."""

    weight: Float[Tensor, "batch q top"]
    key: Int64[Tensor, "batch q top"]

    @property
    def about(self) -> Hashable:
        return self.weight.shape[-1]


@dataclass(frozen=True)
class KLFold(Fold):
    """Of m_ij = Σ_h w^h_ij and a student's scores t_ij: Σ_j m_ij, Σ_j m_ij log m_ij, Σ_j m_ij t_ij, and
    Σ_j exp(t_ij - top_i) with top_i the largest t_ij; over the keys that any head may see."""

    mass: Float[Tensor, "batch q"]
    logs: Float[Tensor, "batch q"]
    cross: Float[Tensor, "batch q"]
    sum: Float[Tensor, "batch q"]
    top: Float[Tensor, "batch q"]
    student: Student

    @property
    def about(self) -> Hashable:
        return id(self.student)


@dataclass(frozen=True)
class PairFold(Fold):
    """The number of pairs that may attend, by column, by diagonal, or in the whole map.

    Keys before `first` don't count. Batch and heads are 1 if the mask is the same for all.
    """

    into: Int64[Tensor, "#batch #heads some"]
    along: str = "columns"
    first: int = 0
