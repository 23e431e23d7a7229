"""Scalings of rotary frequencies that extend a model's context.

Each scaling computes from (theta, dim, length) one frequency per pair of dimensions, and a factor for rotated
queries and keys. The formulas are those of the papers; where transformers differs from a paper, they are
transformers', because models were trained with these.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.errors import ScoreError

__all__ = ["NTK", "DynamicNTK", "Linear", "Llama3", "RopeScaling", "YaRN", "plain_frequencies"]


def plain_frequencies(theta: float, dim: int) -> Float64[Tensor, " half"]:
    """The unscaled frequencies theta^(-2i/dim), in radians per position.

    >>> plain_frequencies(10000.0, 4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    return theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


class RopeScaling(ABC):
    """A rule that stretches rotary positions over a longer context."""

    needs_length = False
    """Whether the frequencies change with the length of the sequence."""

    @abstractmethod
    def frequencies(
        self, theta: float, dim: int, length: int | None = None
    ) -> tuple[Float64[Tensor, " half"], float]:
        """The frequency of each pair of the `dim` rotated dimensions, and the attention factor."""


@dataclass(frozen=True)
class Linear(RopeScaling):
    """Position interpolation: every frequency divided by `factor` (Chen et al., 2023).

    >>> Linear(4.0).frequencies(10000.0, 4)[0]
    tensor([0.2500, 0.0025], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self)

    def frequencies(
        self, theta: float, dim: int, length: int | None = None
    ) -> tuple[Float64[Tensor, " half"], float]:
        return plain_frequencies(theta, dim) / self.factor, 1.0


@dataclass(frozen=True)
class NTK(RopeScaling):
    """NTK-aware scaling: theta is raised so that the slowest pair is stretched by `factor`; the fastest is
    unchanged.

    >>> NTK(4.0).frequencies(10000.0, 4)[0]
    tensor([1.0000, 0.0025], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self)

    def frequencies(
        self, theta: float, dim: int, length: int | None = None
    ) -> tuple[Float64[Tensor, " half"], float]:
        return plain_frequencies(_stretched_theta(self, theta, dim, self.factor), dim), 1.0


@dataclass(frozen=True)
class DynamicNTK(RopeScaling):
    """NTK-aware scaling that grows with the sequence, and has no effect up to `original_length`.

    At length n the slowest pair is stretched by factor * n / original_length - (factor - 1).

    >>> scaling = DynamicNTK(2.0, original_length=1024)
    >>> scaling.frequencies(10000.0, 4, length=1000)[0]
    tensor([1.0000, 0.0100], dtype=torch.float64)
    >>> scaling.frequencies(10000.0, 4, length=2560)[0]
    tensor([1.0000, 0.0025], dtype=torch.float64)
    """

    factor: float
    original_length: int
    needs_length = True

    def __post_init__(self) -> None:
        _check_factor(self)
        _check_length(self, self.original_length)

    def frequencies(
        self, theta: float, dim: int, length: int | None = None
    ) -> tuple[Float64[Tensor, " half"], float]:
        ratio = max(length or 0, self.original_length) / self.original_length
        stretch = self.factor * ratio - (self.factor - 1)
        return plain_frequencies(_stretched_theta(self, theta, dim, stretch), dim), 1.0


@dataclass(frozen=True)
class Llama3(RopeScaling):
    """Llama 3.1's rule: slow pairs divided by `factor`, fast ones kept, those between blended.

    A pair is slow if it turns fewer than `low_freq_factor` times over `original_length` positions,
    and fast if it turns more than `high_freq_factor` times.

    >>> Llama3(8.0, 1.0, 4.0, original_length=8192).frequencies(500000.0, 4)[0]
    tensor([1.0000e+00, 5.2485e-04], dtype=torch.float64)
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_length: int

    def __post_init__(self) -> None:
        _check_factor(self)
        _check_length(self, self.original_length)
        if not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ScoreError(
                f"Llama3 has low_freq_factor {self.low_freq_factor} and "
                f"high_freq_factor {self.high_freq_factor}; wanted 0 < low_freq_factor < high_freq_factor."
            )

    def frequencies(
        self, theta: float, dim: int, length: int | None = None
    ) -> tuple[Float64[Tensor, " half"], float]:
        plain = plain_frequencies(theta, dim)
        turns = self.original_length * plain / (2 * math.pi)
        kept = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return plain * kept + plain / self.factor * (1 - kept), 1.0


@dataclass(frozen=True)
class YaRN(RopeScaling):
    """Fast pairs kept, slow ones divided by `factor`, a ramp between, sharper scores (Peng et al., 2023).

    The ramp runs between the pairs that turn `beta_fast` and `beta_slow` times over `original_length`
    positions, rounded outwards to whole pairs unless `truncate` is False. Without `attention_factor` it
    is 0.1 ln(factor) + 1; DeepSeek's `mscale` and `mscale_all_dim`, given together, replace it by a ratio.

    >>> frequencies, factor = YaRN(4.0, original_length=4096).frequencies(10000.0, 128)
    >>> round(factor, 4), round(float(frequencies[-1]) * 10000.0 ** (126 / 128), 4)
    (1.1386, 0.25)
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        _check_factor(self)
        _check_length(self, self.original_length)
        if not 0 < self.beta_slow < self.beta_fast:
            raise ScoreError(
                f"YaRN has beta_fast {self.beta_fast} and beta_slow {self.beta_slow}; "
                "wanted 0 < beta_slow < beta_fast."
            )
        if self.attention_factor is not None and not self.attention_factor > 0:
            raise ScoreError(
                f"YaRN has attention_factor {self.attention_factor}; it must be above 0. "
                "Leave it out for 0.1 ln(factor) + 1."
            )

    def frequencies(
        self, theta: float, dim: int, length: int | None = None
    ) -> tuple[Float64[Tensor, " half"], float]:
        plain = plain_frequencies(theta, dim)
        low, high = self._ramp(theta, dim)
        divided = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        return plain * (1 - divided) + plain / self.factor * divided, self._attention_factor()

    def _ramp(self, theta: float, dim: int) -> tuple[float, float]:
        """The fractional indices of the pairs between which the ramp goes from keeping to dividing."""

        def pair_that_turns(times: float) -> float:
            return dim * math.log(self.original_length / (2 * math.pi * times)) / (2 * math.log(theta))

        low, high = pair_that_turns(self.beta_fast), pair_that_turns(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        # dim - 1 is beyond the last pair, dim / 2 - 1; transformers clamps there, and models were trained so.
        low, high = max(low, 0), min(high, dim - 1)
        return low, high + 0.001 if low == high else high

    def _attention_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor

        def sharpen(strength: float) -> float:
            return 0.1 * strength * math.log(self.factor) + 1.0

        if self.mscale and self.mscale_all_dim:
            return sharpen(self.mscale) / sharpen(self.mscale_all_dim)
        return sharpen(1.0)


def _stretched_theta(scaling: RopeScaling, theta: float, dim: int, stretch: float) -> float:
    if dim < 4:
        raise ScoreError(
            f"{type(scaling).__name__} got {dim} rotated dimensions; it keeps the fastest pair as it is, "
            "so at least 4 are needed. Use Linear(factor) instead."
        )
    return theta * stretch ** (dim / (dim - 2))


def _check_factor(scaling: Linear | NTK | DynamicNTK | Llama3 | YaRN) -> None:
    if not (scaling.factor >= 1 and math.isfinite(scaling.factor)):
        raise ScoreError(
            f"{type(scaling).__name__} has factor {scaling.factor}; it must be finite and at least 1: "
            "new length / original length."
        )


def _check_length(scaling: RopeScaling, length: int) -> None:
    if length < 1:
        raise ScoreError(
            f"{type(scaling).__name__} has original_length {length}; "
            "it must be at least 1: the length the model was trained at."
        )
