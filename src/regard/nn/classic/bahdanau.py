"""The first attention: Bahdanau, Cho and Bengio (2014)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.engine import attention
from regard.maps import Observation, observe
from regard.nn.classic.sequences import ROWS, Lengths, check_sequences, padding
from regard.scores import Additive
from regard.stats import Statistic

__all__ = ["Bahdanau"]


class Bahdanau(nn.Module):
    """Bahdanau's attention of a decoder over encoder states: softmax of v · tanh(q W + m U).

    `query` holds decoder states, (batch, q, query_dim): one of them in a decoding step, or all at once.
    `memory` is (batch, k, memory_dim), of which row b has `lengths[b]` real states.

    >>> import torch
    >>> look = Bahdanau(query_dim=6, memory_dim=8, hidden=5)
    >>> query, memory = torch.randn(2, 3, 6), torch.randn(2, 7, 8)
    >>> look(query, memory, lengths=[7, 4]).shape
    torch.Size([2, 3, 8])
    >>> look.observe(query, memory, lengths=[7, 4]).map[1, 0, 2, 4:]
    tensor([0., 0., 0.])
    """

    def __init__(self, query_dim: int, memory_dim: int, hidden: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(query_dim, hidden))
        self.u = nn.Parameter(torch.empty(memory_dim, hidden))
        self.v = nn.Parameter(torch.empty(hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the parameters."""
        nn.init.xavier_uniform_(self.w)
        nn.init.xavier_uniform_(self.u)
        nn.init.normal_(self.v, std=self.v.numel() ** -0.5)

    @property
    def score(self) -> Additive:
        """The score function with the current parameters."""
        return Additive(self.w, self.u, self.v)

    def forward(
        self,
        query: Float[Tensor, "batch q query_dim"],
        memory: Float[Tensor, "batch k memory_dim"],
        lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch q memory_dim"]:
        """The context of every query: the weighted sum of the memory."""
        self._check(query, memory)
        return attention(query, memory, memory, padding(lengths, memory), score=self.score)

    def observe(
        self,
        query: Float[Tensor, "batch q query_dim"],
        memory: Float[Tensor, "batch k memory_dim"],
        lengths: Lengths | None = None,
        stats: Sequence[Statistic] = ROWS,
    ) -> Observation:
        """The context in `out`, statistics of the weights, and the alignment in `map`."""
        self._check(query, memory)
        return observe(query, memory, memory, padding(lengths, memory), score=self.score, stats=stats)

    def extra_repr(self) -> str:
        return f"{self.w.shape[0]}, {self.u.shape[0]}, hidden={self.v.shape[0]}"

    def _check(self, query: Tensor, memory: Tensor) -> None:
        check_sequences(query=(query, self.w.shape[0]), memory=(memory, self.u.shape[0]))
