"""Position schemes: transformations of queries and keys that make scores depend on positions.

`Rotary` lives in its own file; here are what they all share, the schemes without rotation, and
Llama 4's mixture of both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ScoreError, ShapeError

__all__ = ["Interleaved", "NoPosition", "Position", "QueryTemperature"]


class Position(ABC):
    """A position scheme: how a layer transforms queries and keys before scoring them.

    Positions are (length,), or (batch, length) if they differ within a batch. By default they count from
    `offset`.
    """

    @abstractmethod
    def rotate(
        self, x: Tensor, positions: Tensor | None = None, offset: int = 0, *, length: int | None = None
    ) -> Tensor:
        """Apply the positions to x, (batch, heads, length, dim).

        `length` is that of the whole sequence if x is a part of it; only DynamicNTK uses it.
        """

    @abstractmethod
    def rotate_pair(self, q: Tensor, k: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Apply the positions to q and k; q is aligned with the end of k, as with a KV cache.

        `positions` are those of the keys; the queries have the last of them.
        """


@dataclass(frozen=True)
class QueryTemperature:
    """Llama 4's remedy for attention that gets flat in long texts: queries are multiplied by a slow
    logarithm.

    The multiplier at a position is strength * ln(floor((position + 1) / floor) + 1) + 1, so it is 1 up
    to position floor - 2 and changes once every `floor` positions. Positions below 0 count as 0.

    >>> import torch
    >>> QueryTemperature().multiplier(torch.tensor([0, 8190, 8191, 100_000]))
    tensor([1.0000, 1.0000, 1.0693, 1.2565])
    """

    floor: int = 8192
    strength: float = 0.1

    def __post_init__(self) -> None:
        if self.floor < 1:
            raise ScoreError(f"QueryTemperature has floor {self.floor}; it must be at least 1 position.")
        if not (self.strength >= 0 and math.isfinite(self.strength)):
            raise ScoreError(f"QueryTemperature has strength {self.strength}; it must be finite, 0 or more.")

    def multiplier(
        self, positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*positions"]:
        """The factor of a query at each of these positions."""
        steps = torch.div(positions.clamp(min=0) + 1, self.floor, rounding_mode="floor")
        return 1 + self.strength * torch.log1p(steps.to(dtype))

    def apply(
        self, q: Float[Tensor, "*lead q dim"], positions: Tensor | None = None, offset: int = 0
    ) -> Float[Tensor, "*lead q dim"]:
        """Multiply each query by its position's multiplier."""
        placed = place(q, positions, offset)
        return (q * self.multiplier(placed, working_dtype(q))[..., None]).to(q.dtype)


@dataclass(frozen=True)
class NoPosition(Position):
    """No positions: only the mask depends on order. With a temperature, queries are still multiplied.

    `rotate` returns its input; the temperature is applied in `rotate_pair`, which knows which tensor is the
    query.

    >>> import torch
    >>> q = k = torch.ones(1, 1, 3, 2)
    >>> NoPosition().rotate_pair(q, k)[0] is q
    True
    """

    temperature: QueryTemperature | None = None

    def rotate(
        self, x: Tensor, positions: Tensor | None = None, offset: int = 0, *, length: int | None = None
    ) -> Tensor:
        return x

    def rotate_pair(self, q: Tensor, k: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if self.temperature is None:
            return q, k
        at, offset = end_aligned(q, k, positions)
        return self.temperature.apply(q, at, offset), k


@dataclass(frozen=True)
class Interleaved:
    """Llama 4's layers: rotary positions in most layers, and none in every n-th.

    Layer i has none if i + 1 is a multiple of `every`; only those layers use the temperature.

    >>> from regard.scores import Rotary
    >>> scheme = Interleaved(Rotary(64), every=4, temperature=QueryTemperature())
    >>> [type(scheme.layer(i)).__name__ for i in range(4)]
    ['Rotary', 'Rotary', 'Rotary', 'NoPosition']
    """

    rotary: Position
    every: int = 4
    temperature: QueryTemperature | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ScoreError(f"Interleaved has every={self.every}; it must be at least 1 layer.")

    def layer(self, i: int) -> Position:
        """The position scheme of layer i, counted from 0."""
        if i < 0:
            raise ScoreError(f"there is no layer {i}; layers count from 0.")
        return self.rotary if (i + 1) % self.every else NoPosition(self.temperature)


def working_dtype(x: Tensor) -> torch.dtype:
    """The dtype of position arithmetic: float32, or float64 for float64."""
    return torch.promote_types(x.dtype, torch.float32)


def place(x: Tensor, positions: Tensor | None, offset: int = 0) -> Tensor:
    """The position of every row of x, in a shape that broadcasts to (batch, heads, length)."""
    if x.ndim != 4:
        raise ShapeError(f"got a tensor of shape {tuple(x.shape)}; wanted (batch, heads, length, dim).")
    batch, _, length, _ = x.shape
    if positions is None:
        return torch.arange(offset, offset + length, device=x.device)
    if offset:
        raise ScoreError(f"got positions and offset={offset}; give one: add the offset to the positions.")
    if positions.shape not in ((length,), (batch, length), (1, length)):
        raise ShapeError(
            f"positions have shape {tuple(positions.shape)} for a tensor of shape {tuple(x.shape)}; "
            f"wanted ({length},) or ({batch}, {length})."
        )
    positions = positions.to(x.device)
    return positions if positions.ndim == 1 else positions[:, None, :]


def end_aligned(q: Tensor, k: Tensor, positions: Tensor | None) -> tuple[Tensor | None, int]:
    """The positions, or the offset, of queries at the end of the keys."""
    spare = k.shape[-2] - q.shape[-2]
    if positions is None:
        return None, spare
    if spare < 0:
        raise ShapeError(
            f"{q.shape[-2]} queries cannot take the last of {positions.shape[-1]} key positions; "
            "rotate q and k one at a time, each with its own positions."
        )
    return positions[..., spare:], 0
