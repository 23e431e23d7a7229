"""Spearman's rank correlation, with a confidence interval and a permutation test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Correlation", "ranks", "spearman"]

PERMUTATIONS = 9999
AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Correlation:
    """Spearman's ρ of n pairs, with a 95 % interval and the chance of so large a |ρ| if nothing were related.

    The interval is Fisher's, with Bonett and Wright's standard error √((1 + ρ²/2) / (n − 3)); NaN below 4
    pairs. `p` comes from 9999 random permutations with a fixed seed, so it is never below 0.0001. All are NaN
    where one side is constant: it has no order.
    """

    rho: float
    n: int
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        if math.isnan(self.rho):
            return f"ρ undefined (n = {self.n})"
        chance = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"ρ = {self.rho:.2f} [{self.low:.2f}, {self.high:.2f}], n = {self.n}, {chance}"


def ranks(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """The rank of every number, from 1; equal numbers share the mean of their ranks.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0, 2.0]))
    tensor([3.5000, 1.0000, 3.5000, 2.0000], dtype=torch.float64)
    """
    _, place, count = x.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count - 1) / 2)[place]


def spearman(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Correlation:
    """Spearman's rank correlation, ties and all: Pearson's correlation of the ranks.

    >>> spearman(torch.arange(10.0), torch.arange(10.0) ** 3).rho
    1.0
    """
    n = len(x)
    a, b = (_standard(ranks(side.detach().cpu().double())) for side in (x, y))
    if a is None or b is None:
        return Correlation(math.nan, n, math.nan, math.nan, math.nan)
    rho = float((a @ b).clamp(-1.0, 1.0))
    low = high = math.nan
    if n > 3:
        spread = 1.959964 * math.sqrt((1 + rho * rho / 2) / (n - 3))
        middle = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, rho)))
        low, high = math.tanh(middle - spread), math.tanh(middle + spread)
    return Correlation(rho, n, low, high, _chance(a, b, rho))


def _standard(ranked: Tensor) -> Tensor | None:
    """Centred, and of length 1; None if all are equal."""
    centred = ranked - ranked.mean() if len(ranked) else ranked
    length = torch.linalg.vector_norm(centred)
    return centred / length if length > 0 else None


def _chance(a: Tensor, b: Tensor, rho: float) -> float:
    """The share of permutations, this one included, that correlate at least as much."""
    generator = torch.Generator().manual_seed(0)
    left, as_large = PERMUTATIONS, 1
    while left:
        size = min(left, max(1, AT_ONCE // len(a)))
        orders = torch.rand(size, len(a), generator=generator).argsort(1)
        as_large += int(((b[orders] @ a).abs() >= abs(rho) - 1e-12).sum())
        left -= size
    return as_large / (PERMUTATIONS + 1)
