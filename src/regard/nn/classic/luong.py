"""Luong, Pham and Manning (2015): three scores, and local attention around a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.engine import attention
from regard.errors import ScoreError, ShapeError
from regard.maps import Observation, observe
from regard.masks import Dense, Mask
from regard.nn.classic.sequences import ROWS, Lengths, check_sequences, lengths_of, padding
from regard.scores import Concat, DotProduct, General, Score
from regard.stats import Statistic

__all__ = ["Luong"]

SCORES = ("dot", "general", "concat")
WHERE = ("global", "local-m", "local-p")


class Luong(nn.Module):
    """Luong's attention of a decoder over encoder states: all of them, or around one position.

    `score` is "dot" (q · m), "general" (q W m) or "concat" (v · tanh([q; m] W)), with no scale. `where` is
    "global"; "local-m", the memory within `reach` of the query's own number; or "local-p", within `reach` of
    a place p = length · sigmoid(v_p · tanh(q W_p)) that is predicted from the query, where each weight is
    also multiplied by a Gaussian around p with standard deviation reach / 2. As in the paper those weights
    are not made to add up to 1 again.

    Memory states count from 0. Local attention holds one number per pair of a query and a memory state.

    >>> import torch
    >>> look = Luong(query_dim=6, memory_dim=8, score="general", where="local-p", reach=2)
    >>> query, memory = torch.randn(2, 3, 6), torch.randn(2, 7, 8)
    >>> look(query, memory, lengths=[7, 4]).shape, look.place(query, memory, lengths=[7, 4]).shape
    (torch.Size([2, 3, 8]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        score: str = "general",
        where: str = "global",
        reach: int | None = None,
        hidden: int | None = None,
    ) -> None:
        super().__init__()
        _check_options(query_dim, memory_dim, score, where, reach)
        self.query_dim, self.memory_dim, self.kind, self.where = query_dim, memory_dim, score, where
        self.reach = reach
        hidden = query_dim if hidden is None else hidden
        if score == "general":
            self.weight = nn.Parameter(torch.empty(query_dim, memory_dim))
        elif score == "concat":
            self.weight = nn.Parameter(torch.empty(query_dim + memory_dim, hidden))
            self.v = nn.Parameter(torch.empty(hidden))
        if where == "local-p":
            self.place_weight = nn.Parameter(torch.empty(query_dim, hidden))
            self.place_v = nn.Parameter(torch.empty(hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the parameters."""
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.normal_(parameter, std=parameter.numel() ** -0.5)

    @property
    def score(self) -> Score:
        """The score function with the current parameters."""
        if self.kind == "concat":
            return Concat(self.weight, self.v)
        return General(self.weight) if self.kind == "general" else DotProduct()

    def place(
        self,
        query: Float[Tensor, "batch q query_dim"],
        memory: Float[Tensor, "batch k memory_dim"],
        lengths: Lengths | None = None,
        start: int = 0,
    ) -> Float[Tensor, "batch q"]:
        """The centre of each query's window in the memory; it need not be an integer."""
        if self.where == "local-p":
            share = torch.sigmoid(torch.tanh(query @ self.place_weight) @ self.place_v)
            return lengths_of(lengths, memory)[:, None] * share
        steps = torch.arange(start, start + query.shape[1], device=query.device, dtype=query.dtype)
        return steps.expand(query.shape[0], -1)

    def forward(
        self,
        query: Float[Tensor, "batch q query_dim"],
        memory: Float[Tensor, "batch k memory_dim"],
        lengths: Lengths | None = None,
        start: int = 0,
    ) -> Float[Tensor, "batch q memory_dim"]:
        """The context of every query. `start` is the number of the first query, which "local-m" uses."""
        if self.where == "local-p":
            return self.observe(query, memory, lengths, start, stats=()).out
        mask = self._mask(query, memory, lengths, self._place(query, memory, lengths, start))
        return attention(query, memory, memory, mask, score=self.score, scale=1.0)

    def observe(
        self,
        query: Float[Tensor, "batch q query_dim"],
        memory: Float[Tensor, "batch k memory_dim"],
        lengths: Lengths | None = None,
        start: int = 0,
        stats: Sequence[Statistic] = ROWS,
    ) -> Observation:
        """The context in `out`, statistics of the weights, and the alignment in `map`.

        With "local-p", map, lse and statistics are of the weights made to add up to 1; `out` is of the
        paper's weights.
        """
        at = self._place(query, memory, lengths, start)
        mask = self._mask(query, memory, lengths, at)
        if self.where != "local-p":
            return observe(query, memory, memory, mask, score=self.score, scale=1.0, stats=stats)
        gaussian = _log_gaussian(at, memory, self._reach / 2)
        near = observe(
            query, memory, memory, mask, score=self.score, scale=1.0, bias=gaussian[:, None], stats=stats
        )
        flat = observe(query, memory, memory[..., :0], mask, score=self.score, scale=1.0, stats=())
        # softmax(s) · g and softmax(s + log g) differ, row by row, by the ratio of their normalisers.
        kept = (near.lse - flat.lse).exp().to(near.out.dtype)  # (batch, 1, q)
        return replace(near, out=near.out * kept[:, 0, :, None])

    def extra_repr(self) -> str:
        reach = "" if self.reach is None else f", reach={self.reach}"
        return f"{self.query_dim}, {self.memory_dim}, score={self.kind!r}, where={self.where!r}{reach}"

    @property
    def _reach(self) -> int:
        return self.reach or 1

    def _place(self, query: Tensor, memory: Tensor, lengths: Lengths | None, start: int) -> Tensor:
        check_sequences(query=(query, self.query_dim), memory=(memory, self.memory_dim))
        return self.place(query, memory, lengths, start)

    def _mask(self, query: Tensor, memory: Tensor, lengths: Lengths | None, at: Tensor) -> Mask | None:
        filled = padding(lengths, memory)
        if self.where == "global":
            return filled
        keys = torch.arange(memory.shape[1], device=memory.device)
        near = Dense(((keys - at.detach()[..., None]).abs() <= self._reach)[:, None])
        return near if filled is None else near & filled


def _log_gaussian(at: Tensor, memory: Tensor, deviation: float) -> Float[Tensor, "batch q k"]:
    keys = torch.arange(memory.shape[1], device=memory.device)
    return -((keys - at[..., None]) ** 2) / (2 * deviation**2)


def _check_options(query_dim: int, memory_dim: int, score: str, where: str, reach: int | None) -> None:
    if score not in SCORES:
        raise ScoreError(f"score is {score!r}; it must be one of {', '.join(map(repr, SCORES))}.")
    if where not in WHERE:
        raise ScoreError(f"where is {where!r}; it must be one of {', '.join(map(repr, WHERE))}.")
    if score == "dot" and query_dim != memory_dim:
        raise ShapeError(
            f"query_dim is {query_dim} and memory_dim is {memory_dim}; a dot product needs equal dims. "
            "Use score='general'."
        )
    if (where == "global") != (reach is None) or (reach is not None and reach < 1):
        wanted = "None" if where == "global" else "a whole number above 0"
        raise ScoreError(f"reach is {reach!r} and where is {where!r}; reach must be {wanted}.")
