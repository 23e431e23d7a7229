"""The ledger: all claims, with their measurements and verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from regard.claims import (
    classic,
    contributions,
    cost,
    determinism,
    explanations,
    heads,
    kinds,
    learning,
    logits,
    masks,
    positions,
    prints,
    profile,
    recurrent,
    retrieval,
    rotary_decay,
    scale,
    serial,
    similarity,
    sinks,
    softmax,
    sparsity,
    tiles,
)
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.subjects import reading
from regard.errors import RegardError

__all__ = ["CLAIMS", "GROUPS", "Entry", "find", "run"]

GROUPS: dict[str, tuple[Claim, ...]] = {
    "The divisor": (*scale.CLAIMS, *logits.CLAIMS),
    "Softmax": (*softmax.CLAIMS, *prints.CLAIMS),
    "Scores": similarity.CLAIMS,
    "Masks": (*masks.CLAIMS, *learning.CLAIMS),
    "Order and distance": (*positions.CLAIMS, *rotary_decay.CLAIMS, *recurrent.CLAIMS, *serial.CLAIMS),
    "Heads": (*heads.CLAIMS, *contributions.LOOP),
    "Cost": cost.CLAIMS,
    "Tiles": (*tiles.CLAIMS, *logits.DRIFT, *determinism.CLAIMS),
    "Sparse patterns": sparsity.CLAIMS,
    "What a trained model does": (
        *sinks.CLAIMS,
        *retrieval.CLAIMS,
        *profile.CLAIMS,
        *kinds.CLAIMS,
        *contributions.CLAIMS,
    ),
    "What weights mean": explanations.CLAIMS,
    "Two sequences": classic.CLAIMS,
}
"""Claims by subject, in the order in which a book would tell them."""

CLAIMS: dict[str, Claim] = {claim.id: claim for claims in GROUPS.values() for claim in claims}


@dataclass(frozen=True)
class Entry:
    """A claim, its measurement, its verdict, and the seconds that it took."""

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


def run(
    ids: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    model: tuple[Any, Any] | None = None,
    name: str = "your model",
) -> list[Entry]:
    """Measure and judge claims: all of them, or those with the ids.

    `progress(done, total)` is called after every claim. All claims take a few minutes. With a `model` and its
    tokenizer, only claims about trained models are measured, on that model.

    >>> [entry] = run(["softmax-budget"])
    >>> entry.claim.id, str(entry.verdict.kind)
    ('softmax-budget', 'holds with a condition')
    """
    chosen = list(CLAIMS.values()) if ids is None else [find(claim) for claim in dict.fromkeys(ids)]
    if model is None:
        return _measured(chosen, progress)
    others = [claim.id for claim in chosen if not claim.of_a_model]
    if ids is not None and others:
        of_models = ", ".join(claim.id for claim in CLAIMS.values() if claim.of_a_model)
        raise RegardError(
            f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} not measured on a model; with a "
            f"model "
            f"there are {of_models}."
        )
    with reading(*model, name):
        return _measured([claim for claim in chosen if claim.of_a_model], progress, given=True)


def _measured(
    chosen: Sequence[Claim], progress: Callable[[int, int], None] | None, given: bool = False
) -> list[Entry]:
    entries = []
    for done, claim in enumerate(chosen):
        start = time.perf_counter()
        try:
            measurement = claim.measure()
            verdict = claim.judge(measurement)
        except RegardError as error:
            # If the model can't be used for one claim, for example because the text is too long, continue
            # with the others.
            if not given:
                raise
            measurement, verdict = Measurement({}), Verdict.unmeasured(str(error))
        entries.append(Entry(claim, measurement, verdict, time.perf_counter() - start))
        if progress is not None:
            progress(done + 1, len(chosen))
    return entries
