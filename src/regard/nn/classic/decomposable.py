"""Decomposable attention: inference by aligning two sentences, without recurrence (Parikh et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.engine import attention
from regard.maps import Observation, observe
from regard.nn.classic.sequences import ROWS, Lengths, check_sequences, padding
from regard.stats import Statistic

__all__ = ["Decomposable", "Inference"]


class Inference(NamedTuple):
    """The predicted relation of two sentences, and both attention maps.

    `ahead` is what each word of the first sentence saw in the second, `back` the other way round: the same
    scores, normalised over the other axis.
    """

    logits: Float[Tensor, "batch classes"]
    ahead: Observation
    back: Observation


class Decomposable(nn.Module):
    """Predicts how two sentences relate in three steps: attend, compare, aggregate.

    Sentences are (batch, length, dim) word vectors, of which row b has `a_lengths[b]` and `b_lengths[b]`
    real words. The three steps are methods, so that each can be looked at alone.

    >>> import torch
    >>> model = Decomposable(dim=8, hidden=16, classes=3)
    >>> a, b = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    >>> model(a, b, b_lengths=[4, 2]).shape
    torch.Size([2, 3])
    >>> model.observe(a, b, b_lengths=[4, 2]).ahead.map[1, 0, 0, 2:]
    tensor([0., 0.])
    """

    def __init__(self, dim: int, hidden: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim = dim
        # No ReLU at the end: with scores of both signs, training separates a word's partners from the rest
        # sooner.
        self.f = _network(dim, hidden, dropout)[:-1]
        self.g = _network(2 * dim, hidden, dropout)
        self.h = nn.Sequential(*_network(2 * hidden, hidden, dropout), nn.Linear(hidden, classes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the parameters: He's weights, so that equal words have high scores from the start."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)

    def attend(
        self,
        a: Float[Tensor, "batch n dim"],
        b: Float[Tensor, "batch m dim"],
        a_lengths: Lengths | None = None,
        b_lengths: Lengths | None = None,
    ) -> tuple[Float[Tensor, "batch n dim"], Float[Tensor, "batch m dim"]]:
        """For each word, the part of the other sentence that it is aligned with; scores are F(a) · F(b)."""
        fa, fb, for_a, for_b = self._sides(a, b, a_lengths, b_lengths)
        return attention(fa, fb, b, for_a, scale=1.0), attention(fb, fa, a, for_b, scale=1.0)

    def compare(
        self, words: Float[Tensor, "batch n dim"], partners: Float[Tensor, "batch n dim"]
    ) -> Float[Tensor, "batch n hidden"]:
        """G of each word concatenated with the part that it was aligned with."""
        return self.g(torch.cat([words, partners], -1))

    def aggregate(
        self,
        a: Float[Tensor, "batch n hidden"],
        b: Float[Tensor, "batch m hidden"],
        a_lengths: Lengths | None = None,
        b_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """H of the two sums over real words."""
        return self.h(torch.cat([_total(a, a_lengths), _total(b, b_lengths)], -1))

    def forward(
        self,
        a: Float[Tensor, "batch n dim"],
        b: Float[Tensor, "batch m dim"],
        a_lengths: Lengths | None = None,
        b_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """The logits of every class."""
        beta, alpha = self.attend(a, b, a_lengths, b_lengths)
        return self.aggregate(self.compare(a, beta), self.compare(b, alpha), a_lengths, b_lengths)

    def observe(
        self,
        a: Float[Tensor, "batch n dim"],
        b: Float[Tensor, "batch m dim"],
        a_lengths: Lengths | None = None,
        b_lengths: Lengths | None = None,
        stats: Sequence[Statistic] = ROWS,
    ) -> Inference:
        """The logits, and the alignment in both directions."""
        fa, fb, for_a, for_b = self._sides(a, b, a_lengths, b_lengths)
        ahead = observe(fa, fb, b, for_a, scale=1.0, stats=stats)
        back = observe(fb, fa, a, for_b, scale=1.0, stats=stats)
        compared = self.compare(a, ahead.out), self.compare(b, back.out)
        return Inference(self.aggregate(*compared, a_lengths, b_lengths), ahead, back)

    def _sides(self, a: Tensor, b: Tensor, a_lengths: Lengths | None, b_lengths: Lengths | None):
        """F of both sentences, and the masks of the real words of the other sentence."""
        check_sequences(a=(a, self.dim), b=(b, self.dim))
        for_a, for_b = padding(b_lengths, b, "b_lengths"), padding(a_lengths, a, "a_lengths")
        return self.f(a), self.f(b), for_a, for_b


def _network(inputs: int, hidden: int, dropout: float) -> nn.Sequential:
    layers = (nn.Dropout(dropout), nn.Linear(inputs, hidden), nn.ReLU())
    return nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU())


def _total(x: Tensor, lengths: Lengths | None) -> Tensor:
    filled = padding(lengths, x)
    # Use where instead of a product, because padding may be NaN.
    return x.sum(1) if filled is None else x.where(filled.valid[..., None], 0).sum(1)
