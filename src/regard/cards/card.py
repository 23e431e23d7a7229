"""`HeadCard`: the findings and statistics of one head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from regard.errors import RecordingError

__all__ = ["Finding", "HeadCard"]


@dataclass(frozen=True)
class Finding:
    """How well one kind describes one head: a score from 0 to 1, None if the kind is undefined.

    `weight` is the mean weight on the keys of the kind over `queries` queries; `chance` is the weight of an
    even spread on them. `evidence` is a text about the observation, or the reason why there is no score.
    """

    kind: str
    score: float | None
    bar: float
    evidence: str
    weight: float | None = None
    chance: float | None = None
    queries: int = 0

    @property
    def found(self) -> bool:
        """Whether the head is of this kind."""
        return self.score is not None and self.score >= self.bar


@dataclass(frozen=True)
class HeadCard:
    """One head: how well each kind describes it, with evidence, and its statistics."""

    stack: str
    layer: int
    head: int
    findings: Mapping[str, Finding]
    statistics: Mapping[str, Any]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the head, best first; there may be none or several."""
        found = [finding for finding in self.findings.values() if finding.found]
        return tuple(f.kind for f in sorted(found, key=lambda f: -(f.score or 0)))

    @property
    def evidence(self) -> dict[str, str]:
        """The evidence for each of its kinds."""
        return {kind: self.findings[kind].evidence for kind in self.kinds}

    def score(self, kind: str) -> float | None:
        """How well one kind describes it, from 0 to 1; None if the kind is undefined here."""
        if kind not in self.findings:
            raise RecordingError(f"there is no kind {kind!r}; kinds are: {', '.join(self.findings)}.")
        return self.findings[kind].score

    def to_dict(self) -> dict[str, Any]:
        """The card as plain data."""
        return {
            "stack": self.stack,
            "layer": self.layer,
            "head": self.head,
            "kinds": list(self.kinds),
            "findings": {kind: asdict(finding) for kind, finding in self.findings.items()},
            "statistics": dict(self.statistics),
        }

    def __repr__(self) -> str:
        kinds = ", ".join(f"{kind} {self.score(kind):.2f}" for kind in self.kinds) or "no kind"
        return f"HeadCard({self.stack} {self.layer}.{self.head}: {kinds})"
