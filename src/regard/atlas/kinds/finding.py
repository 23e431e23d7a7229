"""Findings: the score of a head for one kind, corrected for chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.atlas.tally import Tally
from regard.cards import Finding
from regard.errors import StatisticError

__all__ = ["BAR", "Kind", "lifted", "unfit"]

# The score from which a kind is found: a quarter of the weight that chance leaves.
BAR = 0.25
# With fewer queries chance dominates: single rows of random weights reach any score.
QUERIES = 16
# If an even spread has more weight than this on the keys, the remainder is mostly noise.
MOST_CHANCE = 0.5
# The tolerance for float32 sums of an even spread.
ROUNDING = 1e-3
# The number of standard errors that a shuffled map exceeds once in 30,000 findings: eleven kinds of a few
# thousand heads.
ERRORS = 4.0


@dataclass(frozen=True)
class Kind:
    """A kind of head: its name, the score from which it is found, and the function that judges all heads of a
    layer."""

    name: str
    judge: Callable[[Tally, Kind], list[Finding]]
    bar: float = BAR


def lifted(
    kind: Kind,
    weight: Tensor,
    chance: Tensor,
    queries: Tensor | int,
    evidence: Callable[[int], str],
    *,
    sharpness: Tensor,
    tries: int = 1,
    shuffled: Tensor | None = None,
) -> list[Finding]:
    """One finding per head: (weight - chance) / (1 - chance), at least 0; weight and chance are means.

    A head that spreads evenly scores 0, one that puts all weight there scores 1. A query with a single key
    adds the same to the weight and to the chance, so it has no influence.

    Sharp rows at random places exceed their chance level if there are few queries. `sharpness` is each head's
    mean heaviest weight, `tries` the number of places that the kind chose from, and `shuffled` the expected
    weight of shuffled rows, if that is not `chance`. A weight that a shuffled map could reach too scores 0,
    and the evidence says so.
    """
    heads = len(weight)
    chance = chance.expand(heads)
    queries = torch.as_tensor(queries).expand(heads)
    reach = _reach(chance if shuffled is None else shuffled, queries, sharpness, tries)
    found = []
    for head in range(heads):
        m, c, n = float(weight[head]), float(chance[head]), int(queries[head])
        if not -ROUNDING <= c <= 1 + ROUNDING:
            raise StatisticError(
                f"internal error: an even spread has {c:.4g} of its weight on what {kind.name!r} looks for, "
                "and wanted is a share from 0 to 1. Please report it, with the mask of the layer."
            )
        if n < QUERIES:
            found.append(unfit(kind, f"only {n} queries could show it, and {QUERIES} are wanted"))
        elif c > MOST_CHANCE:
            found.append(unfit(kind, f"an even spread already has {c:.2f} of its weight there"))
        elif c < m <= float(reach[head]):
            words = (
                f"{evidence(head)}; nothing beyond chance: a shuffled map reaches {float(reach[head]):.2f}"
            )
            found.append(Finding(kind.name, 0.0, kind.bar, words, m, c, n))
        else:
            score = min(1.0, max(0.0, (m - c) / (1 - c)))
            found.append(Finding(kind.name, score, kind.bar, evidence(head), m, c, n))
    return found


def _reach(mean: Tensor, queries: Tensor, sharpness: Tensor, tries: int) -> Tensor:
    """The mean weight that the same rows, shuffled, do not exceed.

    The weight of one shuffled row on a set of keys has the mean c and at most the variance c (1 - c) max α,
    since Σ α² <= max α. The largest of `tries` such means lies sqrt(2 ln tries) errors higher.
    """
    c = mean.double().clamp(0, 1)
    error = (c * (1 - c) * sharpness.double().clamp(0, 1) / queries.clamp(min=1)).sqrt()
    return c + (ERRORS + math.sqrt(2 * math.log(max(1, tries)))) * error


def unfit(kind: Kind, reason: str) -> Finding:
    """A finding without a score, with the reason."""
    return Finding(kind.name, None, kind.bar, reason)
