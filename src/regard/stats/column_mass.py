"""The total weight on each key."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError
from regard.stats.base import Block, State, Statistic
from regard.stats.checks import whole
from regard.stats.counts import counted_part, counts_shape
from regard.stats.folds import ColumnFold, Fold, PairFold
from regard.stats.tile import Frame, MapTile

__all__ = ["ColumnMass"]


@dataclass(frozen=True, eq=False, repr=False)
class ColumnMass(Statistic):
    """The attention that each key receives, Σ_i α_ij; keys with large values are the map's heavy hitters.

    Shape (batch, heads, k). `normalise` divides by the number of queries that may see the key (0 if none
    may); under a causal mask, early keys have more. `rows` weighs the queries, Σ_i r_i α_ij = rᵀA, which is
    one step of attention rollout without the matrix; r has shape (q,) or (batch or 1, heads or 1, q). `last`
    counts only that many last queries, and reads only these rows; SnapKV uses this (Li et al., 2024).

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 3, 8)
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[ColumnMass()]).column_mass
    tensor([[[1.8333, 0.8333, 0.3333]]])
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[ColumnMass(normalise=True)]).column_mass
    tensor([[[0.6111, 0.4167, 0.3333]]])
    """

    normalise: bool = False
    rows: Tensor | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None:
            whole(self, "last", self.last, 1)

    def __repr__(self) -> str:
        shown = ["normalise=True"] if self.normalise else []
        if self.rows is not None:
            shown.append(f"rows=<{' × '.join(str(size) for size in self.rows.shape)}>")
        if self.last is not None:
            shown.append(f"last={self.last}")
        return f"ColumnMass({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColumnMass):
            return NotImplemented
        return self._settings == other._settings

    def __hash__(self) -> int:
        return hash(self._settings)

    @property
    def _settings(self) -> tuple[bool, int, int | None]:
        return self.normalise, id(self.rows), self.last

    def check(self, frame: Frame) -> None:
        if self.rows is None:
            return
        wanted = (frame.batch, frame.heads, frame.q)
        shape = tuple(self.rows.shape)
        full = (1, 1, *shape) if len(shape) == 1 else shape
        fits = len(full) == 3 and all(size in (1, most) for size, most in zip(full, wanted, strict=True))
        if not fits or full[2] != frame.q:
            raise ShapeError(
                f"rows of ColumnMass has shape {shape}; wanted one weight per query, ({frame.q},), or "
                f"{wanted} with 1 for a batch or heads that share."
            )

    def init(self, frame: Frame) -> State:
        state = {"sums": frame.sums(frame.batch, frame.heads, frame.k)}
        if self.normalise:
            state["counts"] = frame.sums(*counts_shape(frame), frame.k, dtype=torch.int64)
        return state

    def update(self, state: State, tile: MapTile) -> None:
        part = tile.between(self._counted(tile.frame))
        if part is not None:
            self._add(state, part)

    def _add(self, state: State, tile: MapTile) -> None:
        tile.of_cols(state["sums"]).add_(tile.column_sums if self.rows is None else self._weighted(tile))
        part = counted_part(state["counts"], tile) if self.normalise else None
        if part is not None:
            counts, allowed = part
            seen = len(tile.rows) if allowed is None else allowed.sum(-2)
            counts[..., tile.cols.start : tile.cols.stop] += seen

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        sums = ColumnFold(state["sums"], None if self.rows is None else self._row_weights(frame))
        return [sums, PairFold(state["counts"])] if self.normalise else [sums]

    def blocks(self, frame: Frame) -> list[Block] | None:
        if self.last is None or self.last >= frame.q:
            return None
        rows = self._counted(frame)
        weights = None if self.rows is None else self.rows[..., rows.start :]
        return [Block(rows, ColumnMass(self.normalise, weights))]

    def join_blocks(self, states: list[State], frame: Frame) -> State:
        return states[0]

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch heads k"]:
        return state["sums"] / state["counts"].clamp(min=1) if self.normalise else state["sums"]

    def _counted(self, frame: Frame) -> range:
        """The range of queries that are counted."""
        return range(0 if self.last is None else max(0, frame.q - self.last), frame.q)

    def _weighted(self, tile: MapTile) -> Float[Tensor, "batch heads k"]:
        return (tile.of_rows(self._row_weights(tile.frame))[..., None, :] @ tile.weights).squeeze(-2)

    def _row_weights(self, frame: Frame) -> Float[Tensor, "batch heads q"]:
        rows = self.rows.detach().to(frame.device, frame.dtype)  # type: ignore[union-attr]
        return rows.expand(frame.batch, frame.heads, frame.q)
