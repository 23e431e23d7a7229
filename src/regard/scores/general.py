"""The bilinear score of Luong et al. (2015): q W k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError
from regard.scores.base import Score, check_device

__all__ = ["General"]


@dataclass(frozen=True, eq=False, repr=False)
class General(Score):
    """The score q W k, a dot product through a learned matrix, so q and k may differ in dim.

    `weight` is (dim_q, dim_k), or (heads, dim_q, dim_k) with one matrix per *query* head. It is
    applied to q before the tiles, so grouped-query attention and fused kernels both work.

    >>> import torch
    >>> score = General(torch.tensor([[1.0], [10.0]]))
    >>> q, k = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0]]]])
    >>> score.tile(*score.prepare(q, k)).item()
    63.0
    """

    weight: Tensor
    is_dot: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.weight.ndim not in (2, 3):
            raise ShapeError(
                f"weight of General has shape {tuple(self.weight.shape)}; "
                "wanted (dim_q, dim_k) or (heads, dim_q, dim_k)."
            )

    def __repr__(self) -> str:
        return f"General(weight={tuple(self.weight.shape)})"

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q @ self.weight.to(q.dtype), k

    def tile(
        self, q: Float[Tensor, "*#lead q dim"], k: Float[Tensor, "*#lead k dim"], *parameters: Tensor
    ) -> Float[Tensor, "*lead q k"]:
        return q @ k.mT

    def check(self, q: Tensor, k: Tensor) -> None:
        super().check(q, k)
        check_device(self, q, weight=self.weight)
        if self.weight.shape[-2:] != (q.shape[-1], k.shape[-1]):
            raise ShapeError(
                f"weight of General is {tuple(self.weight.shape)}, q has dim {q.shape[-1]} and k has dim "
                f"{k.shape[-1]}; its last two sizes must be (dim_q, dim_k) = ({q.shape[-1]}, {k.shape[-1]})."
            )
        if self.weight.ndim == 3 and self.weight.shape[0] != q.shape[1]:
            raise ShapeError(
                f"weight of General has {self.weight.shape[0]} heads and q has {q.shape[1]}; "
                "give one matrix per query head, or one of shape (dim_q, dim_k) for all."
            )
