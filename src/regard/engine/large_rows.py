"""Rows whose scores are too large for a float32 log-sum-exp: their weights are computed in float64.

A weight is exp(s - lse). Near 62,500, float32 numbers are 0.004 apart, so rounding s and lse changes weights
by that much, and rows sum to 1.004. Eager softmax subtracts the largest score first, and has no such error.
So these rows get float64 scores, and a log-sum-exp in two parts: the rounded number and its rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.finite import LARGEST
from regard.engine.problem import Problem
from regard.engine.riders import Riders
from regard.engine.torch_backend.forward import forward

__all__ = ["RowNorms", "are_large", "lifted", "row_norms"]


@dataclass(frozen=True)
class RowNorms:
    """The log-sum-exp of rows in two parts, both float64; +inf and 0 where a row sees nothing."""

    high: Float[Tensor, "batch heads q"]
    low: Float[Tensor, "batch heads q"]

    def log_weights(self, scores: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Turn scores of these rows into logarithms of weights, in place; no weight is above 1."""
        return scores.sub_(self.high[..., None]).sub_(self.low[..., None]).clamp_(max=0.0)


def are_large(lse: Float[Tensor, "*rows"]) -> bool:
    """Whether some row must be computed in float64, not counting dead rows and rows that overflow."""
    return bool(((lse.abs() > LARGEST[lse.dtype]) & lse.isfinite()).any())


def lifted(problem: Problem) -> Problem:
    """The same problem with its scores computed in float64."""
    return replace(problem, q=problem.q.double(), k=problem.k.double())


def row_norms(problem: Problem, lse: Float[Tensor, "batch heads q"]) -> RowNorms:
    """The log-sum-exp of every row in two parts; `lse` is that of the forward pass."""
    bare = replace(lifted(problem), v=problem.k[..., :0].double(), sink=None, dropout=0.0)
    plain = forward(bare, Riders(low=True))
    high, low = plain.lse, plain.low
    if low is None:
        raise RuntimeError("the forward pass did not say what it rounded off")
    # A dead row has no rounding error: -inf - -inf is NaN.
    low = low.masked_fill(high == -torch.inf, 0.0)
    if problem.sink is not None:
        high, low = _with_sink(high, low, problem.sink.detach().double()[:, None])
    # A row that overflowed in the forward pass has NaN output, and NaN weights too.
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
