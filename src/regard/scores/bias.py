"""Structured biases, which are added to scores by position.

Such a bias is computed one tile at a time from positions (query i of q sits at position i + (k - q), key j at
position j), and so are its gradients; the whole matrix is never stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError, ScoreError, ShapeError
from regard.scores.buckets import check_buckets, relative_buckets
from regard.scores.diagonals import diagonal_sums

__all__ = ["ALiBi", "Bias", "RelativeBias"]

DTYPES = {str(dtype): dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}


class Bias(ABC):
    """A bias that is added to scores by position, after the scale and before the soft cap and the mask.

    A bias of your own defines `tile`; if it is trainable, also `parameters` and `accumulate`.

    >>> import torch
    >>> class SelfBonus(Bias):
    ...     def tile(self, q_pos, k_pos):
    ...         return 10.0 * (q_pos[:, None] == k_pos)
    >>> SelfBonus().tile(torch.arange(2), torch.arange(3))
    tensor([[10.,  0.,  0.],
            [ 0., 10.,  0.]])
    """

    @abstractmethod
    def tile(self, q_pos: Int[Tensor, " q"], k_pos: Int[Tensor, " k"]) -> Tensor:
        """The bias of every pair of these positions, in a shape that broadcasts to (batch, heads, q, k)."""

    def parameters(self) -> tuple[Tensor, ...]:
        """The trainable tensors, with heads as first dimension, in the order of `accumulate`'s gradients."""
        return ()

    def accumulate(
        self,
        grads: tuple[Tensor, ...],
        ds: Float[Tensor, "batch heads q k"],
        q_pos: Int[Tensor, " q"],
        k_pos: Int[Tensor, " k"],
    ) -> None:
        """Add one tile's part of the gradients to `grads`, in place and in a fixed order.

        `ds` is the gradient of the tile's scores. A call may be for some heads only; `ds` and all of `grads`
        then have these heads.
        """
        if self.parameters():
            name = type(self).__name__
            raise ScoreError(f"{name} has parameters but no accumulate; define it, or detach the parameters.")

    def check(self, heads: int) -> None:
        """Raise if this bias doesn't fit that number of query heads."""

    def to_json(self) -> dict[str, Any]:
        """This bias as plain data, for a recording."""
        name = type(self).__name__
        raise ScoreError(f"{name} has no JSON form; define to_json to record maps that use it.")

    @staticmethod
    def from_json(data: dict[str, Any]) -> Bias:
        """The bias that `to_json` wrote, with its tensors on the CPU.

        >>> Bias.from_json(ALiBi.for_heads(8).to_json())
        ALiBi(heads=8)
        """
        name = data.get("type")
        if name not in ("ALiBi", "RelativeBias"):
            raise ScoreError(f"no bias is called {name!r}; 'ALiBi' and 'RelativeBias' can be read.")
        try:
            if name == "ALiBi":
                return ALiBi(_tensor(data["slopes"]))
            return RelativeBias(_tensor(data["table"]), data["bidirectional"], data["max_distance"])
        except RegardError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ScoreError(f"{name} cannot be read: {error!r}. Wanted what to_json writes.") from error


@dataclass(frozen=True, eq=False, repr=False)
class ALiBi(Bias):
    """A penalty that grows with distance, -slope * |q - k|, with one slope per head (Press et al., 2021).

    The slopes are trainable if they require grad; the published ones don't.

    >>> import torch
    >>> ALiBi(torch.tensor([0.5])).tile(torch.arange(3), torch.arange(3))
    tensor([[[[ 0.0000, -0.5000, -1.0000],
              [-0.5000,  0.0000, -0.5000],
              [-1.0000, -0.5000,  0.0000]]]])
    """

    slopes: Tensor

    def __post_init__(self) -> None:
        if self.slopes.ndim != 1:
            raise ShapeError(f"slopes of ALiBi have shape {tuple(self.slopes.shape)}; wanted (heads,).")

    def __repr__(self) -> str:
        return f"ALiBi(heads={len(self.slopes)})"

    @classmethod
    def for_heads(cls, heads: int) -> ALiBi:
        """The published slopes: 2^(-8/heads), its square, its cube, ...

        If heads is not a power of two, the slopes for the next lower power come first, then every other slope
        for the next higher one.

        >>> ALiBi.for_heads(3).slopes
        tensor([0.0625, 0.0039, 0.2500])
        """
        if heads < 1:
            raise ScoreError(f"ALiBi was asked for {heads} heads; at least 1 is needed.")
        below = 1 << (heads.bit_length() - 1)
        exponents = [8 * (i + 1) / below for i in range(below)]
        exponents += [8 * (2 * i + 1) / (2 * below) for i in range(heads - below)]
        return cls(torch.tensor([2.0**-x for x in exponents], dtype=torch.float32))

    def tile(self, q_pos: Int[Tensor, " q"], k_pos: Int[Tensor, " k"]) -> Float[Tensor, "1 heads q k"]:
        # bfloat16 can't distinguish positions 300 and 301: convert the slopes to float32, not the distances
        # to bfloat16.
        slopes = self.slopes.to(q_pos.device, torch.promote_types(self.slopes.dtype, torch.float32))
        return slopes[None, :, None, None] * -_distance(q_pos, k_pos)

    def parameters(self) -> tuple[Tensor, ...]:
        return (self.slopes,) if self.slopes.requires_grad else ()

    def accumulate(
        self,
        grads: tuple[Tensor, ...],
        ds: Float[Tensor, "batch heads q k"],
        q_pos: Int[Tensor, " q"],
        k_pos: Int[Tensor, " k"],
    ) -> None:
        if grads:
            grads[0].sub_((ds.sum(0, dtype=torch.float64) * _distance(q_pos, k_pos)).sum((-2, -1)))

    def check(self, heads: int) -> None:
        if len(self.slopes) != heads:
            raise ShapeError(
                f"ALiBi has {len(self.slopes)} slopes and q has {heads} heads; "
                f"give one slope per query head, or use ALiBi.for_heads({heads})."
            )

    def to_json(self) -> dict[str, Any]:
        return {"type": "ALiBi", "slopes": _plain(self.slopes)}


@dataclass(frozen=True, eq=False, repr=False)
class RelativeBias(Bias):
    """T5's learned bias: one number per head and bucket of distances (Raffel et al., 2019).

    `table` is (heads, buckets). Half of a direction's buckets hold one distance each; the others get wider up
    to `max_distance`, and all larger distances share the last. With `bidirectional`, the first half of the
    table is for keys at or before the query, the second for keys after it. Transformers stores the table
    transposed: pass `embedding.weight.T`.

    >>> import torch
    >>> bias = RelativeBias(torch.arange(8.0)[None], max_distance=16)
    >>> bias.tile(torch.arange(3), torch.arange(3))
    tensor([[[[0., 5., 6.],
              [1., 0., 5.],
              [2., 1., 0.]]]])
    """

    table: Tensor
    bidirectional: bool = True
    max_distance: int = 128

    def __post_init__(self) -> None:
        if self.table.ndim != 2:
            shape = tuple(self.table.shape)
            raise ShapeError(f"table of RelativeBias has shape {shape}; wanted (heads, buckets).")
        check_buckets(self.table.shape[1], self.bidirectional, self.max_distance)

    def __repr__(self) -> str:
        heads, buckets = self.table.shape
        return (
            f"RelativeBias(heads={heads}, buckets={buckets}, "
            f"bidirectional={self.bidirectional}, max_distance={self.max_distance})"
        )

    def tile(self, q_pos: Int[Tensor, " q"], k_pos: Int[Tensor, " k"]) -> Float[Tensor, "1 heads q k"]:
        return self.table.to(q_pos.device)[None, :, self._buckets(k_pos - q_pos[:, None])]

    def parameters(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def accumulate(
        self,
        grads: tuple[Tensor, ...],
        ds: Float[Tensor, "batch heads q k"],
        q_pos: Int[Tensor, " q"],
        k_pos: Int[Tensor, " k"],
    ) -> None:
        # Each entry is a sum over many pairs whose terms nearly cancel.
        ds = ds.sum(0, dtype=torch.float64)
        if _consecutive(q_pos) and _consecutive(k_pos):
            steps = torch.arange(1 - len(q_pos), len(k_pos), device=q_pos.device)
            buckets = self._buckets(k_pos[0] - q_pos[0] + steps)
            chosen = buckets[:, None] == torch.arange(self.table.shape[1], device=buckets.device)
            # A matrix product instead of a scatter, which would use atomics: (heads, diagonals) @ (diagonals,
            # buckets).
            grads[0].add_(diagonal_sums(ds) @ chosen.to(ds.dtype))
            return
        buckets = self._buckets(k_pos - q_pos[:, None])
        for bucket in range(self.table.shape[1]):
            grads[0][:, bucket].add_(ds.where(buckets == bucket, 0).sum((-2, -1)))

    def check(self, heads: int) -> None:
        if self.table.shape[0] != heads:
            raise ShapeError(
                f"table of RelativeBias is {tuple(self.table.shape)} and q has {heads} heads; "
                f"wanted ({heads}, buckets). Transpose a table kept as (buckets, heads)."
            )

    def to_json(self) -> dict[str, Any]:
        flags = {"bidirectional": self.bidirectional, "max_distance": self.max_distance}
        return {"type": "RelativeBias", "table": _plain(self.table), **flags}

    def _buckets(self, relative: Tensor) -> Tensor:
        return relative_buckets(relative, self.table.shape[1], self.bidirectional, self.max_distance)


def _distance(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    return (q_pos[:, None] - k_pos).abs()


def _consecutive(positions: Tensor) -> bool:
    return bool((positions.diff() == 1).all())


def _plain(tensor: Tensor) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype), "values": tensor.tolist()}


def _tensor(plain: dict[str, Any]) -> Tensor:
    return torch.tensor(plain["values"], dtype=DTYPES[plain["dtype"]])
