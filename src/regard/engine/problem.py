"""One attention call in a single layout, with every option resolved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.scoring import Scoring
from regard.masks import Mask
from regard.memo import Keeper

__all__ = ["Problem", "asked_once", "sum_dtype"]


@dataclass(frozen=True)
class Problem(Keeper):
    """One attention call after validation: 4-d tensors, a bound mask, one scoring rule.

    `offset` is the position of query 0. Usually it is k_len - q_len: the last query sits on the last key.
    """

    q: Float[Tensor, "batch heads q dim"]
    k: Float[Tensor, "batch kv_heads k dim"]
    v: Float[Tensor, "batch kv_heads k v_dim"]
    mask: Mask | None
    scoring: Scoring
    sink: Float[Tensor, "heads"] | None
    dropout: float
    offset: int
    rank: int
    seed: int = 0

    @property
    def batch(self) -> int:
        return self.q.shape[0]

    @property
    def heads(self) -> int:
        return self.q.shape[1]

    @property
    def group(self) -> int:
        """How many query heads share one key head."""
        return self.q.shape[1] // max(1, self.k.shape[1])

    @property
    def q_len(self) -> int:
        return self.q.shape[2]

    @property
    def k_len(self) -> int:
        return self.k.shape[2]

    def block(self, rows: range) -> Problem:
        """The problem restricted to some queries, each at its own position."""
        scoring, bias = self.scoring, self.scoring.bias
        if isinstance(bias, Tensor) and bias.shape[2] > 1:
            scoring = replace(scoring, bias=bias[:, :, rows.start : rows.stop])
        q = self.q[:, :, rows.start : rows.stop]
        return replace(self, q=q, scoring=scoring, offset=self.offset + rows.start)

    @property
    def accumulate(self) -> torch.dtype:
        """The dtype of sums: never half precision."""
        return sum_dtype(self.q.dtype)

    @property
    def asks(self) -> bool:
        """Whether the call depends on functions: score_mod, bias, score, or a mask that is no value."""
        scoring, bias = self.scoring, self.scoring.bias
        plain = (
            scoring.score.is_dot and scoring.score_mod is None and (bias is None or isinstance(bias, Tensor))
        )
        return not plain or (self.mask is not None and not self.mask.repeatable)

    def restore(self, x: Tensor) -> Tensor:
        """Give a (batch, heads, …) result the rank of the user's inputs."""
        return x if self.rank == 4 else x[:, 0] if self.rank == 3 else x[0, 0]


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over numbers of a dtype: never half precision."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def asked_once(question: Callable[[Problem], bool]) -> Callable[[Problem], bool]:
    """Cache the result of a function of a problem with the problem."""
    name = f"{question.__module__}.{question.__qualname__}"

    @wraps(question)
    def ask(problem: Problem) -> bool:
        return problem.once(name, lambda: question(problem))

    return ask
