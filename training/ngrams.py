"""What counting achieves: n-gram models with modified Kneser-Ney smoothing, the baselines of the model card.

Chen and Goodman (1998), interpolated, with three discounts per order estimated from counts of counts. An
n-gram is one integer of 12 bits a token, so five tokens fit in 60 bits and counting is sorting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BITS", "NGramModel"]

BITS = 12


@dataclass(frozen=True)
class _Order:
    """The counts of one order: sorted n-grams, and for each sorted context its total and leftover weight."""

    grams: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    backoff: np.ndarray
    discounts: np.ndarray

    @classmethod
    def of(cls, grams: np.ndarray, counts: np.ndarray) -> _Order:
        discounts = _discounts(counts)
        contexts, first = np.unique(grams >> BITS, return_index=True)
        totals = np.add.reduceat(counts, first)
        backoff = np.add.reduceat(discounts[np.minimum(counts, 3)], first) / totals
        return cls(grams, counts, contexts, totals, backoff, discounts)

    def refine(self, keys: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """The probability of each n-gram's last token, given that of the order below."""
        count = _lookup(self.grams, self.counts, keys, 0)
        total = _lookup(self.contexts, self.totals, keys >> BITS, 0)
        backoff = _lookup(self.contexts, self.backoff, keys >> BITS, 1.0)
        own = np.maximum(count - self.discounts[np.minimum(count, 3)], 0) / np.maximum(total, 1)
        return own + backoff * lower


class NGramModel:
    """An n-gram model of a stream of tokens below 4,096.

    >>> model = NGramModel(np.array([1, 2, 3] * 40), order=2, vocabulary=8)
    >>> p = model.probabilities(np.array([1, 2, 1]))
    >>> bool(p[1] > 0.9), bool(p[2] < 0.1)
    (True, True)
    """

    def __init__(self, tokens: np.ndarray, order: int, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        grams, counts = np.unique(_grams(tokens, order), return_counts=True)
        orders = [_Order.of(grams, counts)]
        for n in range(order - 1, 0, -1):
            # Below the highest order what counts is how many different tokens stood in front.
            grams, counts = np.unique(grams & ((1 << BITS * n) - 1), return_counts=True)
            orders.append(_Order.of(grams, counts))
        self.orders = orders[::-1]

    def probabilities(self, tokens: np.ndarray) -> np.ndarray:
        """The probability of each token after those before it; id 0 is taken to precede the first."""
        p = np.full(len(tokens), 1 / self.vocabulary)
        for n, order in enumerate(self.orders, 1):
            p = order.refine(_grams(np.concatenate([np.zeros(n - 1, int), tokens]), n), p)
        return p

    def loss(self, tokens: np.ndarray) -> float:
        """Mean negative log-likelihood in nats per token."""
        return float(-np.log(self.probabilities(tokens)).mean())


def _grams(tokens: np.ndarray, n: int) -> np.ndarray:
    tokens = tokens.astype(np.uint64)
    keys = np.zeros(len(tokens) - n + 1, np.uint64)
    for i in range(n):
        keys = (keys << BITS) | tokens[i : len(tokens) - n + 1 + i]
    return keys


def _discounts(counts: np.ndarray) -> np.ndarray:
    """Discounts for counts 0, 1, 2 and 3 or more; plain ones where too few counts exist to estimate them."""
    n = np.bincount(np.minimum(counts, 5), minlength=5)[:5].astype(float)
    if (n[1:5] == 0).any():
        return np.array([0.0, 0.5, 0.5, 0.5])
    y = n[1] / (n[1] + 2 * n[2])
    found = [c - (c + 1) * y * n[c + 1] / n[c] for c in (1, 2, 3)]
    return np.clip([0.0, *found], 0.0, [0, 1, 2, 3])


def _lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray, missing: float) -> np.ndarray:
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], missing)
