"""Attention weighted by the norm of its contribution to the residual stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError
from regard.stats.base import State, Statistic
from regard.stats.folds import ColumnFold, Fold, MixFold
from regard.stats.tile import Frame, MapTile
from regard.stats.value_weighted import guarded_columns, guarded_sums, values_of

__all__ = ["NormMass", "NormWeighted"]


class NormMass(NamedTuple):
    """Norm-weighted attention summed over the keys of each query, and over the queries of each key."""

    rows: Float[Tensor, "batch heads q"]
    columns: Float[Tensor, "batch heads k"]


@dataclass(frozen=True, eq=False, repr=False)
class NormWeighted(Statistic):
    """Sums of the norm of each pair's contribution, ‖α_ij v_j W_O^h‖ = α_ij ‖v_j W_O^h‖ (Kobayashi et al.,
    2020).

    A `NormMass`: Σ_j as (batch, heads, q), Σ_i as (batch, heads, k). `w_o` is (heads, v_dim, d_model), each
    head's rows of the output projection; for an `nn.Linear`, `weight.T.unflatten(0, (heads, v_dim))`.

    >>> import torch, regard
    >>> x = torch.ones(1, 1, 2, 4)
    >>> seen = regard.observe(x, x, x, mask=regard.Causal(), stats=[NormWeighted(torch.eye(4)[None])])
    >>> seen.norm_weighted.rows, seen.norm_weighted.columns
    (tensor([[[2., 2.]]]), tensor([[[3., 1.]]]))
    """

    w_o: Tensor

    def __post_init__(self) -> None:
        if self.w_o.ndim != 3:
            shape = tuple(self.w_o.shape)
            raise ShapeError(f"w_o of NormWeighted has shape {shape}; wanted (heads, v_dim, d_model).")

    def __repr__(self) -> str:
        return f"NormWeighted(w_o=<{' × '.join(str(size) for size in self.w_o.shape)}>)"

    def check(self, frame: Frame) -> None:
        wanted = (frame.heads, values_of(self, frame).shape[-1])
        if tuple(self.w_o.shape[:2]) != wanted:
            raise ShapeError(
                f"w_o of NormWeighted has shape {tuple(self.w_o.shape)}; for {wanted[0]} heads and values "
                f"of {wanted[1]} it must be ({wanted[0]}, {wanted[1]}, d_model)."
            )

    def init(self, frame: Frame) -> State:
        return {
            "rows": frame.zeros(frame.batch, frame.heads, frame.q, 2),
            "mass": frame.zeros(frame.batch, frame.heads, frame.k),
            "norms": guarded_columns(self._norms(frame)),
        }

    def update(self, state: State, tile: MapTile) -> None:
        tile.of_rows(state["rows"]).add_(tile.weights @ tile.of_cols(state["norms"]))
        tile.of_cols(state["mass"]).add_(tile.column_sums)

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [MixFold(state["rows"], state["norms"]), ColumnFold(state["mass"])]

    def merge(self, state: State, other: State) -> State:
        sums = {name: state[name] + other[name] for name in ("rows", "mass")}
        return {**sums, "norms": state["norms"]}

    def finish(self, state: State, frame: Frame) -> NormMass:
        columns = guarded_sums(state["mass"][..., None] * state["norms"])
        return NormMass(guarded_sums(state["rows"]), columns)

    def _norms(self, frame: Frame) -> Float[Tensor, "batch heads k"]:
        """‖v_j W_O^h‖, one head at a time, so that no (batch, heads, k, d_model) tensor is allocated."""
        values = values_of(self, frame).detach()
        group = frame.heads // values.shape[1]
        norms = frame.zeros(frame.batch, frame.heads, frame.k)
        for head, w in enumerate(self.w_o.detach().to(frame.device, frame.dtype)):
            # W = (QR)ᵀ with Q orthogonal, so ‖vW‖ = ‖vRᵀ‖, and R has only v_dim rows.
            short = torch.linalg.qr(w.mT, mode="r").R.mT if w.shape[1] > w.shape[0] else w
            mixed = values[:, head // group].to(frame.dtype) @ short
            torch.linalg.vector_norm(mixed, dim=-1, out=norms[:, head])
        return norms
