"""Rows whose scores are too large for the log-sum-exp of a forward pass: they are computed in float64.

A weight is exp(s - lse). A float32 near 62,500 has steps of 0.004, so the rounding of s and lse alone makes
weights wrong by that much, and rows sum to 1.004. Eager softmax has no such error: the largest score cancels
before anything is rounded. Such rows therefore get their scores in float64 and their log-sum-exp in two
parts, a large one and its rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders
from regard.engine.torch_backend.forward import forward

__all__ = ["RowNorms", "are_large", "lifted", "row_norms"]

# The largest |lse| that is good enough as it is: it is off by up to 2e-6 in float32 and 4e-12 in float64.
LARGEST = {torch.float32: 2.0**6, torch.float64: 2.0**16}


@dataclass(frozen=True)
class RowNorms:
    """The log-sum-exp of rows in two parts, both float64; +inf and 0 where a row sees nothing."""

    high: Float[Tensor, "batch heads q"]
    low: Float[Tensor, "batch heads q"]

    def log_weights(self, scores: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Scores of these rows become logarithms of weights, in place; no weight is above 1."""
        return scores.sub_(self.high[..., None]).sub_(self.low[..., None]).clamp_(max=0.0)


def are_large(lse: Float[Tensor, "*rows"]) -> bool:
    """Whether some row must be computed in float64. Dead rows and rows that overflow don't count."""
    return bool(((lse.abs() > LARGEST[lse.dtype]) & lse.isfinite()).any())


def lifted(problem: Problem) -> Problem:
    """The same problem with its scores computed in float64."""
    return replace(problem, q=problem.q.double(), k=problem.k.double())


def row_norms(problem: Problem, lse: Float[Tensor, "batch heads q"]) -> RowNorms:
    """The log-sum-exp of every row in two parts; `lse` is what the forward pass found."""
    bare = replace(lifted(problem), v=problem.k[..., :0].double(), sink=None, dropout=0.0)
    plain = forward(bare, Riders(low=True))
    high, low = plain.lse, plain.low
    if low is None:
        raise RuntimeError("the forward pass did not say what it rounded off")
    # A dead row has no rounding error: -inf - -inf is NaN.
    low = low.masked_fill(high == -torch.inf, 0.0)
    if problem.sink is not None:
        high, low = _with_sink(high, low, problem.sink.detach().double()[:, None])
    # A row that overflowed in the forward pass has no output, and no map either.
    lost = ~(lse < torch.inf)
    high = high.masked_fill(high == -torch.inf, torch.inf)
    return RowNorms(torch.where(lost, lse.double(), high), low.masked_fill(~high.isfinite() | lost, 0.0))


def _with_sink(high: Tensor, low: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """log(exp(high + low) + exp(sink)) in two parts."""
    above = torch.maximum(high, sink)
    gap = torch.where(high >= sink, (sink - high) - low, (high - sink) + low)
    more = torch.where(high >= sink, low, 0.0) + gap.masked_fill(above.isinf(), -torch.inf).exp().log1p()
    total = above + more
    return total, (above - total) + more
