"""The base class of score functions, and the dot product.

A score function computes one number from a query and a key. It has two steps, so that streaming over tiles
needs no extra work: `prepare` runs once over whole sequences (projections), `tile` runs once per tile on the
results of `prepare`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from regard.errors import DeviceError, ScoreError, ShapeError

__all__ = ["DotProduct", "Score"]


class Score(ABC):
    """A score function: the number computed from a query and a key.

    A score function of your own defines `tile`, and `prepare` if it has projections. The engine applies
    scale, bias, soft cap and mask afterwards.

    >>> import torch
    >>> class Distance(Score):
    ...     def tile(self, q, k, *parameters):
    ...         return -torch.cdist(q, k)
    >>> Distance().tile(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([[-5.]])
    """

    is_dot: ClassVar[bool] = False
    """Whether the score is the dot product of the results of `prepare`; then fused kernels can compute it."""

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Project q and k, once, before any tile. Layout (batch, heads, length, dim); differentiable."""
        return q, k

    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors that `tile` uses, without those that only `prepare` uses."""
        return ()

    @abstractmethod
    def tile(
        self, q: Float[Tensor, "*#lead q dim"], k: Float[Tensor, "*#lead k dim"], *parameters: Tensor
    ) -> Float[Tensor, "*lead q k"]:
        """Score every query of a tile against every key of it.

        This must be a pure function of its arguments, which are slices of the results of `prepare` followed
        by `parameters`, so that the engine can differentiate it tile by tile. The engine chooses the leading
        dimensions from batch and heads.
        """

    def default_scale(self, dim: int) -> float:
        """The default scale of scores; dim is that of q."""
        return 1.0

    def check(self, q: Tensor, k: Tensor) -> None:
        """Raise if the user's q and k can't be scored."""
        for name, x in (("q", q), ("k", k)):
            if x.ndim != 4:
                raise ShapeError(
                    f"{name} has shape {tuple(x.shape)}; wanted (batch, heads, length, dim). "
                    "Add the missing dimensions with unsqueeze."
                )
        if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
            raise ShapeError(
                f"q has {q.shape[1]} heads and k has {k.shape[1]}; q heads must be a multiple of k heads."
            )

    def to_json(self) -> dict[str, Any]:
        """This score function as plain data, for a recording."""
        raise ScoreError(
            f"{type(self).__name__} has no JSON form: its parameters live with the model. "
            "Save the model, and build the score function from it again."
        )

    @staticmethod
    def from_json(data: dict[str, Any]) -> Score:
        """The score function that `to_json` wrote.

        >>> Score.from_json(DotProduct().to_json())
        DotProduct()
        """
        if data.get("type") != "DotProduct":
            raise ScoreError(f"no score is called {data.get('type')!r}; only 'DotProduct' can be read.")
        return DotProduct()


def check_device(score: Score, q: Tensor, **tensors: Tensor) -> None:
    """Raise if a score function's tensors are not on q's device."""
    for name, tensor in tensors.items():
        if tensor.device != q.device:
            kind = type(score).__name__
            raise DeviceError(
                f"{name} of {kind} is on {tensor.device} and q is on {q.device}. Move one with .to(device)."
            )


@dataclass(frozen=True)
class DotProduct(Score):
    """The score q . k, by default scaled by 1 / sqrt(dim).

    >>> import torch
    >>> q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    >>> DotProduct().tile(q, k)
    tensor([[11., 17.]])
    """

    is_dot: ClassVar[bool] = True

    def tile(
        self, q: Float[Tensor, "*#lead q dim"], k: Float[Tensor, "*#lead k dim"], *parameters: Tensor
    ) -> Float[Tensor, "*lead q k"]:
        return q @ k.mT

    def default_scale(self, dim: int) -> float:
        return 1.0 / math.sqrt(dim)

    def check(self, q: Tensor, k: Tensor) -> None:
        super().check(q, k)
        if q.shape[-1] != k.shape[-1]:
            raise ShapeError(
                f"q has dim {q.shape[-1]} and k has dim {k.shape[-1]}; a dot product needs equal dims. "
                "Project one of them, or use General(weight)."
            )

    def to_json(self) -> dict[str, Any]:
        return {"type": "DotProduct"}
