"""The ledger: every claim, and what came out when it was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from regard.claims import (
    classic,
    cost,
    determinism,
    explanations,
    heads,
    kinds,
    masks,
    positions,
    prints,
    profile,
    recurrent,
    scale,
    sinks,
    softmax,
    sparsity,
    tiles,
)
from regard.claims.claim import Claim, Measurement, Verdict
from regard.errors import RegardError

__all__ = ["CLAIMS", "GROUPS", "Entry", "find", "run"]

GROUPS: dict[str, tuple[Claim, ...]] = {
    "The divisor": scale.CLAIMS,
    "Softmax": (*softmax.CLAIMS, *prints.CLAIMS),
    "Masks": masks.CLAIMS,
    "Order and distance": (*positions.CLAIMS, *recurrent.CLAIMS),
    "Heads": heads.CLAIMS,
    "Cost": cost.CLAIMS,
    "Tiles": (*tiles.CLAIMS, *determinism.CLAIMS),
    "Sparse patterns": sparsity.CLAIMS,
    "What a trained model does": (*sinks.CLAIMS, *profile.CLAIMS, *kinds.CLAIMS),
    "What weights mean": explanations.CLAIMS,
    "Two sequences": classic.CLAIMS,
}
"""Claims by subject, in the order in which a book would tell them."""

CLAIMS: dict[str, Claim] = {claim.id: claim for claims in GROUPS.values() for claim in claims}


@dataclass(frozen=True)
class Entry:
    """A claim, what was measured, the verdict that follows, and the seconds it took."""

    claim: Claim
    measurement: Measurement
    verdict: Verdict
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain data, which `json.dumps` takes."""
        return {
            "id": self.claim.id,
            "statement": self.claim.statement,
            "how": self.claim.how,
            "verdict": str(self.verdict.kind),
            "sentence": self.verdict.sentence,
            "numbers": dict(self.measurement.numbers),
            "seconds": round(self.seconds, 2),
        }


def find(name: str) -> Claim:
    """The claim with an id.

    >>> find("sinks").statement
    'Much of the weight goes to the first token.'
    """
    if name not in CLAIMS:
        near = get_close_matches(name, CLAIMS, n=2)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise RegardError(
            f"there is no claim {name!r}; the ledger has {len(CLAIMS)}.{meant} "
            "List them with: regard claims --list"
        )
    return CLAIMS[name]


def run(ids: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None) -> list[Entry]:
    """Measure claims and judge each by what came out: all of them, or those with the ids.

    `progress(done, total)` is called after every claim. All of them take a minute or two.

    >>> [entry] = run(["softmax-budget"])
    >>> entry.claim.id, str(entry.verdict.kind)
    ('softmax-budget', 'holds with a condition')
    """
    chosen = list(CLAIMS.values()) if ids is None else [find(name) for name in dict.fromkeys(ids)]
    entries = []
    for done, claim in enumerate(chosen):
        start = time.perf_counter()
        measurement = claim.measure()
        entries.append(Entry(claim, measurement, claim.judge(measurement), time.perf_counter() - start))
        if progress is not None:
            progress(done + 1, len(chosen))
    return entries
