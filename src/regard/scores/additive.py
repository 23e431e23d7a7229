"""Scores by a small network, v . tanh(...): Bahdanau et al. (2014) and Luong et al. (2015)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError
from regard.scores.base import Score, check_device

__all__ = ["Additive", "Concat"]

# The hidden layer of a tile has q * k * hidden elements; it is computed in slices of at most this many.
SLICE_ELEMENTS = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class Additive(Score):
    """Bahdanau's score v . tanh(q W_q + k W_k), the first attention; q and k may differ in dim.

    `w_q` is (dim_q, hidden), `w_k` is (dim_k, hidden) and `v` is (hidden,), shared by all heads. Forward and
    backward hold at most a few million hidden units at once.

    >>> import torch
    >>> score = Additive(torch.eye(2), torch.eye(2), torch.tensor([1.0, -1.0]))
    >>> q, k = torch.zeros(1, 1, 1, 2), torch.tensor([[[[9.0, 0.0], [0.0, 9.0]]]])
    >>> score.tile(*score.prepare(q, k), *score.parameters()).round(decimals=3)
    tensor([[[[ 1., -1.]]]])
    """

    w_q: Tensor
    w_k: Tensor
    v: Tensor

    def __post_init__(self) -> None:
        shapes = tuple(self.w_q.shape), tuple(self.w_k.shape), tuple(self.v.shape)
        if [len(shape) for shape in shapes] != [2, 2, 1] or len({shape[-1] for shape in shapes}) != 1:
            raise ShapeError(
                f"Additive has w_q {shapes[0]}, w_k {shapes[1]} and v {shapes[2]}; "
                "wanted (dim_q, hidden), (dim_k, hidden) and (hidden,) with one hidden size."
            )

    def __repr__(self) -> str:
        return f"Additive(w_q={tuple(self.w_q.shape)}, w_k={tuple(self.w_k.shape)}, v={tuple(self.v.shape)})"

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q @ self.w_q.to(q.dtype), k @ self.w_k.to(k.dtype)

    def parameters(self) -> tuple[Tensor, ...]:
        return (self.v,)

    def tile(
        self, q: Float[Tensor, "*#lead q dim"], k: Float[Tensor, "*#lead k dim"], *parameters: Tensor
    ) -> Float[Tensor, "*lead q k"]:
        return tanh_tile(q, k, *parameters)

    def check(self, q: Tensor, k: Tensor) -> None:
        super().check(q, k)
        check_device(self, q, w_q=self.w_q, w_k=self.w_k, v=self.v)
        for name, x, weight in (("q", q, self.w_q), ("k", k, self.w_k)):
            if x.shape[-1] != weight.shape[0]:
                raise ShapeError(
                    f"{name} has dim {x.shape[-1]} and w_{name} of Additive is {tuple(weight.shape)}; "
                    f"w_{name} must be (dim, hidden) with dim = {x.shape[-1]}."
                )


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Score):
    """Luong's concat score v . tanh([q; k] W), one matrix over the query and key joined.

    `weight` is (dim_q + dim_k, hidden), the rows for q first, and `v` is (hidden,). The joined
    vectors are never built: [q; k] W is q times the upper rows plus k times the lower ones.

    >>> import torch
    >>> score = Concat(torch.eye(2), torch.tensor([1.0, 0.0]))
    >>> q, k = torch.full((1, 1, 1, 1), 9.0), torch.zeros(1, 1, 3, 1)
    >>> score.tile(*score.prepare(q, k), *score.parameters()).round(decimals=3)
    tensor([[[[1., 1., 1.]]]])
    """

    weight: Tensor
    v: Tensor

    def __post_init__(self) -> None:
        shapes = tuple(self.weight.shape), tuple(self.v.shape)
        if [len(shape) for shape in shapes] != [2, 1] or shapes[0][-1] != shapes[1][-1]:
            raise ShapeError(
                f"Concat has weight {shapes[0]} and v {shapes[1]}; "
                "wanted (dim_q + dim_k, hidden) and (hidden,) with one hidden size."
            )

    def __repr__(self) -> str:
        return f"Concat(weight={tuple(self.weight.shape)}, v={tuple(self.v.shape)})"

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        upper, lower = self.weight.to(q.dtype).split([q.shape[-1], k.shape[-1]])
        return q @ upper, k @ lower

    def parameters(self) -> tuple[Tensor, ...]:
        return (self.v,)

    def tile(
        self, q: Float[Tensor, "*#lead q dim"], k: Float[Tensor, "*#lead k dim"], *parameters: Tensor
    ) -> Float[Tensor, "*lead q k"]:
        return tanh_tile(q, k, *parameters)

    def check(self, q: Tensor, k: Tensor) -> None:
        super().check(q, k)
        check_device(self, q, weight=self.weight, v=self.v)
        if q.shape[-1] + k.shape[-1] != self.weight.shape[0]:
            raise ShapeError(
                f"q has dim {q.shape[-1]}, k has dim {k.shape[-1]} and weight of Concat is "
                f"{tuple(self.weight.shape)}; it needs {q.shape[-1] + k.shape[-1]} rows, those for q first."
            )


def tanh_tile(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """v . tanh(q_i + k_j) for every pair, without storing the whole hidden layer."""
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    return _TanhTile.apply(q.expand(*lead, -1, -1), k.expand(*lead, -1, -1), v.to(q.dtype))  # pyright: ignore


def _slices(q: Tensor, k: Tensor) -> Iterator[slice]:
    hidden, pairs = q.shape[-1], q.shape[:-1].numel() * k.shape[-2]
    step = max(1, SLICE_ELEMENTS // max(1, pairs))
    return (slice(start, start + step) for start in range(0, hidden, step))


class _TanhTile(torch.autograd.Function):
    """Recomputes tanh in the backward pass; autograd would save all q * k * hidden elements."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        scores = q.new_zeros(*q.shape[:-1], k.shape[-2])
        for h in _slices(q, k):
            hidden = torch.tanh(q[..., :, None, h] + k[..., None, :, h])  # (..., q, k, slice)
            scores += hidden @ v[h]
        return scores

    @staticmethod
    # PyTorch declares `*grad_outputs`; this function has one output, so it gets one gradient.
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, ds: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        if torch.is_grad_enabled():
            # With create_graph=True autograd records these operations, and keeps the whole hidden layer.
            scores = torch.tanh(q[..., :, None, :] + k[..., None, :, :]) @ v
            by = [x for x in (q, k, v) if x.requires_grad]
            grads = iter(torch.autograd.grad(scores, by, ds, create_graph=True))
            return tuple(next(grads) if x.requires_grad else None for x in (q, k, v))
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for h in _slices(q, k):
            hidden = torch.tanh(q[..., :, None, h] + k[..., None, :, h])  # (..., q, k, slice)
            # Not a matrix product: BLAS may add all pairs one after the other, and every addition rounds;
            # `sum` is pairwise.
            dv[h] = (ds[..., None] * hidden).sum(-2).flatten(0, -2).sum(0)
            inner = ds[..., None] * v[h] * (1 - hidden.square())  # (..., q, k, slice)
            dq[..., h] = inner.sum(-2)
            dk[..., h] = inner.sum(-3)
        return dq, dk, dv
