"""The argument of `update`: one exact tile of the map, and its frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.stats.skew import skewed_sums

if TYPE_CHECKING:
    from regard.masks import Mask

__all__ = ["Frame", "MapTile"]


@dataclass(frozen=True)
class Frame:
    """The frame of a statistic: the sizes of the map, its mask, and the values.

    Rows are query indices 0 … q-1, columns key indices 0 … k-1; query row i sits at position i + k - q.
    """

    batch: int
    heads: int
    q: int
    k: int
    mask: Mask | None = None
    values: Float[Tensor, "batch kv_heads k v_dim"] | None = None
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    # Allocates the tensors that folds add to; a pass whose kernels overwrite them may leave them
    # uninitialised.
    make_sums: Callable[..., Tensor] = torch.zeros

    @property
    def offset(self) -> int:
        """Position of query row 0."""
        return self.k - self.q

    def zeros(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.zeros(shape, dtype=dtype or self.dtype, device=self.device)

    def sums(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor that folds add to: zeros, unless the pass allocates it in another way."""
        return self.make_sums(shape, dtype=dtype or self.dtype, device=self.device)


@dataclass(frozen=True)
class MapTile:
    """A tile: some batch rows and heads of the map, a range of its rows, a range of its columns.

    Weights are exact: alpha_ij = exp(s_ij - lse_i), 0 where the mask forbids or the row is dead. The tensors
    are buffers of the pass: don't store or modify them.
    """

    frame: Frame
    batch: range
    heads: range
    rows: range
    cols: range
    weights: Float[Tensor, "batch heads q k"]
    allowed: Bool[Tensor, "#batch #heads q k"] | None = None
    log_weights_of: Callable[[], Tensor] | None = None
    scores_of: Callable[[], Tensor] | None = None
    lse: Float[Tensor, "batch heads q"] | None = None
    # Set if no score is -inf, so that every log weight is finite.
    finite: bool = False

    @cached_property
    def log_weights(self) -> Float[Tensor, "batch heads q k"]:
        """log alpha, -inf for masked cells."""
        return self.weights.log() if self.log_weights_of is None else self.log_weights_of()

    @cached_property
    def scores(self) -> Float[Tensor, "batch heads q k"]:
        """The logits, -inf where masked."""
        if self.scores_of is not None:
            return self.scores_of()
        if self.lse is None:
            raise NotImplementedError("this tile was made without scores")
        return self.log_weights + self.lse[..., None]

    @cached_property
    def q_pos(self) -> Int[Tensor, "q"]:
        """Positions of the queries."""
        offset = self.frame.offset
        return torch.arange(self.rows.start + offset, self.rows.stop + offset, device=self.weights.device)

    @cached_property
    def k_pos(self) -> Int[Tensor, "k"]:
        return torch.arange(self.cols.start, self.cols.stop, device=self.weights.device)

    @cached_property
    def weighted_logs(self) -> Float[Tensor, "batch heads q"]:
        """Σ_j α_ij log α_ij. Overwrites `log_weights`, so statistics that read those must be updated
        before."""
        logs = self.log_weights
        if not self.finite:
            logs.clamp_(min=torch.finfo(logs.dtype).min)  # 0 * -inf is NaN
        # In place and in two steps, which run at the speed of the cache; a batched inner product doesn't.
        return logs.mul_(self.weights).sum(-1)

    @cached_property
    def _row_sums(self) -> dict[int, Tensor]:
        return {}

    def block_sums(self, rows: int) -> Float[Tensor, "batch heads blocks k"]:
        """Sums over every `rows` queries, which must divide the tile; cached for all statistics of the
        tile."""
        if rows not in self._row_sums:
            self._row_sums[rows] = self.weights.unflatten(-2, (-1, rows)).sum(-2)
        return self._row_sums[rows]

    @cached_property
    def column_sums(self) -> Float[Tensor, "batch heads k"]:
        """Sums over this tile's queries; cached for all statistics of the tile."""
        sums = next(iter(self._row_sums.values()), self.weights)
        return sums.sum(-2)

    @cached_property
    def diagonal_sums(self) -> Float[Tensor, "batch heads diagonals"]:
        """Sums along each diagonal, from the tile's lower left corner to its upper right; cached likewise."""
        return skewed_sums(self.weights)

    def between(self, rows: range) -> MapTile | None:
        """The part of this tile within a range of queries; None if there is none."""
        start, stop = max(rows.start, self.rows.start), min(rows.stop, self.rows.stop)
        if start >= stop:
            return None
        if stop - start == len(self.rows):
            return self
        here = slice(start - self.rows.start, stop - self.rows.start)
        logs, scores = self.log_weights_of, self.scores_of
        return replace(
            self,
            rows=range(start, stop),
            weights=self.weights[:, :, here],
            allowed=None if self.allowed is None else self.allowed[:, :, here],
            log_weights_of=None if logs is None else lambda: logs()[:, :, here],
            scores_of=None if scores is None else lambda: scores()[:, :, here],
            lse=None if self.lse is None else self.lse[:, :, here],
        )

    def of_heads(self, x: Tensor) -> Tensor:
        """The part of a (batch, heads, …) tensor that belongs to this tile's batch rows and heads; a view."""
        return x[self.batch.start : self.batch.stop, self.heads.start : self.heads.stop]

    def of_rows(self, x: Tensor) -> Tensor:
        """The part of a (batch, heads, q, …) tensor that belongs to this tile's queries; a view."""
        return self.of_heads(x)[:, :, self.rows.start : self.rows.stop]

    def of_cols(self, x: Tensor) -> Tensor:
        """The part of a (batch, heads, k, …) tensor that belongs to this tile's keys; a view."""
        return self.of_heads(x)[:, :, self.cols.start : self.cols.stop]
