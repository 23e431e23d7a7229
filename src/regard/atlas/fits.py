"""Least-squares lines through a few points, with confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.decay import octave_starts

__all__ = ["Line", "fit_line", "log_bins", "t_quantile"]


@dataclass(frozen=True)
class Line:
    """y = intercept + slope x by least squares; `half_width` is that of the slope's 95 % interval."""

    slope: float
    intercept: float
    half_width: float
    r2: float
    residual: float
    """The sum of squared residuals."""


def fit_line(x: Float[Tensor, " points"], y: Float[Tensor, " points"]) -> Line:
    """The least-squares line. Its interval also holds if the points have different variances (HC3, Student's
    t).

    >>> x = torch.tensor([0.0, 1.0, 2.0, 3.0])
    >>> line = fit_line(x, 1 - 2 * x)
    >>> line.slope, line.intercept, line.r2
    (-2.0, 1.0, 1.0)
    """
    x, y = x.double(), y.double()
    away = x - x.mean()
    spread = float(away.square().sum())
    slope = float((away * y).sum()) / spread
    intercept = float(y.mean()) - slope * float(x.mean())
    residual = y - intercept - slope * x
    leverage = 1 / len(x) + away.square() / spread
    variance = float((away * residual / (1 - leverage).clamp(min=1e-9)).square().sum()) / spread**2
    squares = float(residual.square().sum())
    total = float((y - y.mean()).square().sum())
    return Line(
        slope=slope,
        intercept=intercept,
        half_width=t_quantile(0.975, len(x) - 2) * math.sqrt(variance),
        r2=1 - squares / total if total > 0 else 0.0,
        residual=squares,
    )


def log_bins(
    values: Float[Tensor, "... distances"], first: int, last: int, per_octave: int = 4
) -> Float[Tensor, "... bins"]:
    """Means over geometrically growing bins of the values at distances first … last.

    >>> log_bins(torch.arange(1.0, 9.0), 1, 8, per_octave=1)
    tensor([1.0000, 2.5000, 5.5000, 8.0000])
    """
    starts = [start for start in octave_starts(0, last + 1, per_octave) if start >= first]
    edges = [first, *[start for start in starts if start > first], last + 1]
    sizes = [stop - start for start, stop in pairwise(edges)]
    return torch.stack([part.mean(-1) for part in values.split(sizes, -1)], -1)


def t_quantile(p: float, freedom: int) -> float:
    """A quantile of Student's t: the normal one, corrected for few degrees of freedom.

    >>> t_quantile(0.975, 10), t_quantile(0.975, 1000)
    (2.228, 1.962)
    """
    z, n = NormalDist().inv_cdf(p), freedom
    terms = (
        z,
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return sum(terms)
