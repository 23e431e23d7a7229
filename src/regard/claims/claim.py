"""`Claim`: a textbook claim, its measurement and its verdict."""

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
    """The possible verdicts about a measured claim."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    FOLKLORE = "folklore"
    MISPRINT = "misprint"
    UNMEASURED = "not measured"


@dataclass(frozen=True)
class Verdict:
    """One of the kinds, with a sentence about the numbers that decided it.

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
        """The verdict if the given model can't be used for a claim; the sentence says why."""
        return cls(Kind.UNMEASURED, reason)


@dataclass(frozen=True)
class Measurement:
    """Measured numbers by name, as plain data, and the data of a figure."""

    numbers: Mapping[str, Any]
    picture: Picture | None = None

    def __getitem__(self, name: str) -> Any:
        return self.numbers[name]


@dataclass(frozen=True)
class Claim:
    """A textbook claim as a small program: `measure` measures, and `judge` sees only the numbers.

    `measure()` measures the real subject. Its keyword arguments replace it with a variant: another divisor,
    an untrained model, a false clock. Tests use variants to check that the verdict depends on the
    measurement. Claims `of_a_model` can be measured on any model.

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
        """Measure with a fixed seed; the caller's random state is not changed.

        It runs on one thread: most tensors are tiny, and the numbers don't depend on the number of cores.
        """
        with torch.random.fork_rng(devices=[]), threads(1):
            torch.manual_seed(SEED)
            return self.measuring(**variant)
