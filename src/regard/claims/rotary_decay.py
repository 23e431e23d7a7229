"""The claim that maximum entropy and rotary positions give the power law of decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.words import number
from regard.scores import Rotary

__all__ = ["CLAIMS"]

# The score of a query with a key that is equal to it, by distance.
Scores = Callable[[int], Tensor]


def rotated(length: int, dim: int = 64) -> Tensor:
    """What rotary positions leave of q · q at each distance: the mean cosine of its angles, times √dim."""
    angles = torch.arange(1, length, dtype=torch.float64)[:, None] * Rotary(dim).frequencies()[0].double()
    return math.sqrt(dim) * angles.cos().mean(-1)


def _straight(x: Tensor, y: Tensor) -> tuple[float, float]:
    """The slope of the line through points, and the share of their variance that it explains."""
    x, y = x - x.mean(), y - y.mean()
    slope = (x * y).sum() / x.square().sum()
    return slope.item(), (1 - (y - slope * x).square().sum() / y.square().sum()).item()


def measure_decay(scores: Scores = rotated, length: int = 1024) -> Measurement:
    """The most even weights that have a mean score, by distance, and the laws that they follow."""
    found = scores(length)
    distance = torch.arange(1, length, dtype=torch.float64)
    # A mean over windows that grow with the distance takes away the waves of single frequencies.
    edges = [round(1.25**i) for i in range(4, 40) if 1.25**i < length - 1]
    at, smooth = [], []
    for low, high in pairwise(edges):
        at.append(distance[low - 1 : high - 1].mean())
        smooth.append(found[low - 1 : high - 1].mean())
    x, y = torch.stack(at), torch.stack(smooth)
    gamma, power = _straight(x.log(), y)
    _, exponential = _straight(x, y)
    return Measurement(
        {
            "length": length,
            "exponent": -gamma,
            "r2_power_law": power,
            "r2_exponential": exponential,
        },
        Curves(
            {"rotary positions": (x.tolist(), y.exp().tolist())},
            "distance",
            "weight before its sum",
            log="xy",
        ),
    )


def judge_decay(m: Measurement) -> Verdict:
    found = (
        f"of the weights with the most entropy for a mean score, the logarithm is the score; with rotary "
        f"positions "
        f"that falls with the logarithm of the distance (exponent {number(m['exponent'], 2)}, R² "
        f"{m['r2_power_law']:.2f}; with the distance itself, R² {m['r2_exponential']:.2f})"
    )
    if m["exponent"] <= 0 or m["r2_power_law"] < m["r2_exponential"]:
        return Verdict.folklore(found)
    if m["r2_power_law"] > 0.95:
        return Verdict.holds(found)
    return Verdict.conditional(f"better than an exponential, and not exactly: {found}")


CLAIMS = (
    Claim(
        "maxent-rotary",
        "Maximum entropy and rotary positions together give a power law of decay with distance.",
        "What rotary positions leave of a score by distance, fitted by both laws up to 1,024 tokens.",
        measure_decay,
        judge_decay,
    ),
)
