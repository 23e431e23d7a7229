"""Rotary positions (Su et al., 2021): each pair of dimensions turned by an angle that grows with position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from regard.errors import ScoreError, ShapeError
from regard.scores.positions import Position, end_aligned, place, working_dtype
from regard.scores.rope_scaling import RopeScaling, plain_frequencies

__all__ = ["Rotary"]


@dataclass(frozen=True)
class Rotary(Position):
    """Rotary positions, after which q . k depends on the distance of the two positions only.

    There are two layouts of the pairs, and a model works only with its own: halves, dimension i with i +
    dim/2 (Llama, and most of transformers), or `interleaved`, 2i with 2i + 1 (GPT-J, and the paper). With
    `partial`, only the first int(dim * partial) dimensions are rotated. Angles are computed in float32 (in
    float64 for float64), because bfloat16 can't represent positions above 256 exactly.

    >>> import torch
    >>> x = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    >>> Rotary(2).rotate(x)
    tensor([[[[1.0000, 0.0000],
              [0.5403, 0.8415]]]])
    """

    dim: int
    theta: float = 10000.0
    scaling: RopeScaling | None = None
    partial: float = 1.0
    interleaved: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.partial <= 1:
            raise ScoreError(f"Rotary has partial={self.partial}; it must be above 0 and at most 1.")
        if self.rotated_dim < 2 or self.rotated_dim % 2:
            raise ScoreError(
                f"Rotary(dim={self.dim}, partial={self.partial}) would turn {self.rotated_dim} dimensions; "
                "they turn in pairs, so the number must be even and at least 2."
            )
        if not (self.theta > 1 and math.isfinite(self.theta)):
            raise ScoreError(f"Rotary has theta={self.theta}; it must be a finite number above 1.")
        self.frequencies()  # a scaling that cannot work with this dim says so here and not in a forward pass

    @property
    def rotated_dim(self) -> int:
        """The number of rotated dimensions; the others are unchanged."""
        return int(self.dim * self.partial)

    def frequencies(self, length: int | None = None) -> tuple[Float64[Tensor, " half"], float]:
        """The angle of each pair per position, and the factor that rotated dimensions are multiplied by.

        `length` is that of the sequence, which DynamicNTK depends on.

        >>> Rotary(4).frequencies()
        (tensor([1.0000, 0.0100], dtype=torch.float64), 1.0)
        """
        if self.scaling is None:
            return plain_frequencies(self.theta, self.rotated_dim), 1.0
        return self.scaling.frequencies(self.theta, self.rotated_dim, length)

    def rotate(
        self,
        x: Float[Tensor, "*lead length dim"],
        positions: Tensor | None = None,
        offset: int = 0,
        *,
        length: int | None = None,
    ) -> Float[Tensor, "*lead length dim"]:
        at = place(x, positions, offset)
        if x.shape[-1] != self.dim:
            raise ShapeError(
                f"Rotary was made for dim {self.dim} and got a tensor of shape {tuple(x.shape)}; "
                f"its last size must be {self.dim}. It turns the dims of one head: split the heads first."
            )
        cos, sin = self._cos_sin(x, at, self._length(at) if length is None else length)
        turning, still = x.split([self.rotated_dim, self.dim - self.rotated_dim], dim=-1)
        first, second = self._halves(turning.to(cos.dtype))
        turned = self._join(first * cos - second * sin, second * cos + first * sin).to(x.dtype)
        return torch.cat([turned, still], dim=-1) if still.shape[-1] else turned

    def rotate_pair(self, q: Tensor, k: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        at, offset = end_aligned(q, k, positions)
        length = self._length(place(k, positions))
        return self.rotate(q, at, offset, length=length), self.rotate(k, positions, length=length)

    def _length(self, at: Tensor) -> int | None:
        # Reading the last position waits for the device, so do it only if the scaling needs it.
        if self.scaling is None or not self.scaling.needs_length or at.numel() == 0:
            return None
        return int(at.max()) + 1

    def _cos_sin(self, x: Tensor, at: Tensor, length: int | None) -> tuple[Tensor, Tensor]:
        frequencies, factor = self.frequencies(length)
        dtype = working_dtype(x)
        # Round before moving, because some devices have no float64.
        frequencies = frequencies.to(dtype).to(x.device)
        angles = at.to(dtype)[..., None] * frequencies  # (..., length, rotated_dim / 2)
        return angles.cos() * factor, angles.sin() * factor

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.interleaved:
            return x[..., 0::2], x[..., 1::2]
        half = self.rotated_dim // 2
        return x[..., :half], x[..., half:]

    def _join(self, first: Tensor, second: Tensor) -> Tensor:
        if self.interleaved:
            return torch.stack([first, second], dim=-1).flatten(-2)
        return torch.cat([first, second], dim=-1)
