"""A claim that textbooks make: what it says, how it is measured, and how its verdict follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from regard.claims.pictures import Picture
from regard.claims.timing import threads

__all__ = ["Claim", "Kind", "Measurement", "Verdict"]

SEED = 0


class Kind(StrEnum):
    """What can be said of a claim once it has been measured."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    FOLKLORE = "folklore"
    MISPRINT = "misprint"
    UNMEASURED = "not measured"


@dataclass(frozen=True)
class Verdict:
    """One of the kinds, and a sentence made of the numbers that decided it.

    >>> Verdict.folklore("the weights add up to 1.7")
    Verdict(kind=<Kind.FOLKLORE: 'folklore'>, sentence='the weights add up to 1.7')
    """

    kind: Kind
    sentence: str

    def __str__(self) -> str:
        return f"{self.sentence[:1].upper()}{self.sentence[1:].removesuffix('.')}."

    @classmethod
    def holds(cls, sentence: str) -> Verdict:
        return cls(Kind.HOLDS, sentence)

    @classmethod
    def conditional(cls, sentence: str) -> Verdict:
        return cls(Kind.CONDITION, sentence)

    @classmethod
    def folklore(cls, sentence: str) -> Verdict:
        return cls(Kind.FOLKLORE, sentence)

    @classmethod
    def misprint(cls, sentence: str) -> Verdict:
        return cls(Kind.MISPRINT, sentence)

    @classmethod
    def unmeasured(cls, reason: str) -> Verdict:
        """A model that is given may lack what a claim needs: the sentence says what."""
        return cls(Kind.UNMEASURED, reason)


@dataclass(frozen=True)
class Measurement:
    """What was measured: numbers by name, as plain data, and what a figure of them needs."""

    numbers: Mapping[str, Any]
    picture: Picture | None = None

    def __getitem__(self, name: str) -> Any:
        return self.numbers[name]


@dataclass(frozen=True)
class Claim:
    """A sentence of the textbooks as a small program: `measure` looks, and `judge` sees only the numbers.

    `measure()` measures the real thing. Its keyword arguments, each claim's own, put a variant in the place
    of the real thing: another divisor, an untrained model, a clock that lies. A claim that gets the same
    verdict whatever is measured would be an opinion. One `of_a_model` can be measured on any model.

    >>> from regard.claims import find
    >>> claim = find("scale-std")
    >>> claim.judge(claim.measure(pairs=500)).kind, claim.judge(claim.measure(pairs=500, divisor=float)).kind
    (<Kind.CONDITION: 'holds with a condition'>, <Kind.FOLKLORE: 'folklore'>)
    """

    id: str
    statement: str
    how: str
    measuring: Callable[..., Measurement]
    judge: Callable[[Measurement], Verdict]
    of_a_model: bool = False

    def measure(self, **variant: Any) -> Measurement:
        """Measure, from the same seed every time; the random numbers of the caller are left alone.

        On one thread: most tensors are tiny, and the numbers are the same however many cores there are.
        """
        with torch.random.fork_rng(devices=[]), threads(1):
            torch.manual_seed(SEED)
            return self.measuring(**variant)
