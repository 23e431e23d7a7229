"""Claims about what a score says of two vectors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.atlas.ranks import ranks
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Grid
from regard.claims.words import number, percent

__all__ = ["CLAIMS"]


def _asymmetry(x: Tensor) -> float:
    """How far a matrix is from its transpose, relative to its size."""
    return ((x - x.T).norm() / x.norm()).item()


def measure_tied(tied: bool = True, n: int = 33, dim: int = 32, head_dim: int = 16) -> Measurement:
    """Scores and weights of random tokens where queries and keys come out of one matrix."""
    x = torch.randn(n, dim, dtype=torch.float64)
    w_q, w_k = torch.randn(2, dim, head_dim, dtype=torch.float64) / math.sqrt(dim)
    scores = (x @ w_q) @ (x @ (w_q if tied else w_k)).T / math.sqrt(head_dim)
    weights = scores.softmax(-1)
    # A head that should look one token back, and the nearest that symmetric scores can come to it.
    back = torch.diag(torch.full((n - 1,), 30.0, dtype=torch.float64), -1)
    nearest = (back + back.T) / 2 if tied else back
    previous = (2 * nearest).softmax(-1).diagonal(-1)[:-1]
    return Measurement(
        {
            "tokens": n,
            "asymmetry_of_scores": _asymmetry(scores),
            "asymmetry_of_weights": _asymmetry(weights),
            "rows_that_prefer_themselves": (scores.argmax(-1) == torch.arange(n)).double().mean().item(),
            "most_weight_on_the_previous_token": previous.mean().item(),
        },
        Grid.pair(
            weights[:12, :12].tolist(),
            weights.T[:12, :12].tolist(),
            "query",
            "key (right: transposed)",
            limit=0.5,
        ),
    )


def judge_tied(m: Measurement) -> Verdict:
    if m["asymmetry_of_scores"] > 1e-9:
        return Verdict.folklore(f"scores differ from their transpose by {percent(m['asymmetry_of_scores'])}")
    found = (
        f"scores are symmetric to {number(m['asymmetry_of_scores'], 2)}, and "
        f"{percent(m['rows_that_prefer_themselves'])} of tokens score highest with themselves; a head "
        f"that should "
        f"look one token back can give it {percent(m['most_weight_on_the_previous_token'])} at most, the "
        f"next "
        f"token gets as much"
    )
    if m["asymmetry_of_weights"] > 0.01:
        return Verdict.conditional(
            f"{found}; but that holds for scores: softmax divides each row by its own sum, and weights "
            f"differ from "
            f"their transpose by {percent(m['asymmetry_of_weights'])}"
        )
    return Verdict.holds(found)


Measures = dict[str, Callable[[Tensor, Tensor], Tensor]]
MEASURES: Measures = {
    "dot product": lambda q, k: k @ q,
    "cosine": lambda q, k: k @ q / (k.norm(dim=-1) * q.norm()),
    "Euclidean": lambda q, k: -(k - q).norm(dim=-1),
}


def measure_alike(
    measures: Measures = MEASURES, keys: int = 200, d: int = 32, spread: float = 0.5, queries: int = 20
) -> Measurement:
    """Rank correlations of three similarities over keys of equal norms, and of unequal ones."""
    found: dict[str, dict[str, float]] = {}
    for name, sizes in (("equal", 0.0), ("unequal", spread)):
        totals = dict.fromkeys(list(measures)[1:], 0.0)
        for _ in range(queries):
            q, k = torch.randn(d, dtype=torch.float64), torch.randn(keys, d, dtype=torch.float64)
            k = (
                k
                / k.norm(dim=-1, keepdim=True)
                * (sizes * torch.randn(keys, 1)).double().exp()
                * math.sqrt(d)
            )
            first, *others = (measure(q, k) for measure in measures.values())
            for label, scores in zip(totals, others, strict=True):
                totals[label] += (
                    torch.corrcoef(torch.stack([ranks(first), ranks(scores)]))[0, 1].item() / queries
                )
        found[name] = totals
    opposite = {name: measure(torch.ones(4), -torch.ones(1, 4)).item() for name, measure in measures.items()}
    return Measurement(
        {
            "keys": keys,
            "spread_of_norms": spread,
            "rank_correlation_equal_norms": found["equal"],
            "rank_correlation_unequal_norms": found["unequal"],
            "score_of_an_opposite_key": opposite,
        },
        Bars(
            list(found["equal"]),
            {f"{name} norms": list(values.values()) for name, values in found.items()},
            "rank correlation with the dot product",
        ),
    )


def judge_alike(m: Measurement) -> Verdict:
    equal, unequal = m["rank_correlation_equal_norms"], m["rank_correlation_unequal_norms"]
    said = ", ".join(f"{name} {unequal[name]:.2f}" for name in unequal)
    if min(equal.values()) < 0.999:
        return Verdict.folklore(f"even among keys of one norm orders differ: {equal}")
    if min(unequal.values()) > 0.99:
        return Verdict.holds(f"among keys of unequal norms too: {said}")
    return Verdict.conditional(
        f"among keys of one norm all three give the same order, and a query's own norm never changes it; "
        f"where norms "
        f"of keys differ (by a factor of {math.exp(m['spread_of_norms']):.2f} either way, typically) rank "
        f"correlations with the dot product are {said}: it prefers long keys"
    )


CLAIMS = (
    Claim(
        "tied-qk",
        "W_Q = W_K makes the map symmetric.",
        "Random tokens under one projection for queries and keys: scores and weights against their "
        "transposes.",
        measure_tied,
        judge_tied,
    ),
    Claim(
        "similarity",
        "Dot product, cosine and Euclidean distance find the same keys similar.",
        "The order of 200 random keys under each, with equal norms and with unequal ones.",
        measure_alike,
        judge_alike,
    ),
)
