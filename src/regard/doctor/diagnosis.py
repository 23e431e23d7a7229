"""The result of an examination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.doctor.finding import Finding

__all__ = ["Diagnosis"]


@dataclass(frozen=True)
class Diagnosis:
    """The findings about one attention, how it was interpreted, and remarks that are not findings.

    `unexamined` lists what could not be examined; if it is not empty, the verdict is never `healthy`.

    >>> print(Diagnosis("attention", reading={"layout": "bhnd"}))
    attention: nothing found.
      read as  layout bhnd
    """

    name: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    reading: dict[str, Any] | None = None
    unexamined: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """`broken`, `not examined` or `healthy`."""
        return "broken" if self.findings else "not examined" if self.unexamined else "healthy"

    @property
    def healthy(self) -> bool:
        """Whether everything was examined and nothing was found."""
        return self.verdict == "healthy"

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings."""
        return tuple(finding.code for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data for JSON."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "healthy": self.healthy,
            "findings": [finding.as_dict() for finding in self.findings],
            "unexamined": list(self.unexamined),
            "notes": list(self.notes),
            "reading": dict(self.reading or {}),
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Diagnosis:
        """The diagnosis that `as_dict` wrote."""
        findings = tuple(Finding.from_dict(entry) for entry in found["findings"])
        return cls(
            found["name"], findings, tuple(found["notes"]), found["reading"], tuple(found["unexamined"])
        )

    def __str__(self) -> str:
        count = len(self.findings)
        head = f"{count} finding{'s' if count > 1 else ''}." if count else "nothing found."
        lines = [f"{self.name}: {'not examined.' if self.verdict == 'not examined' else head}"]
        if self.reading:
            lines.append("  read as  " + ", ".join(f"{key} {value}" for key, value in self.reading.items()))
        lines += [f"  because  {why}" for why in self.unexamined]
        lines += [f"  note     {note}" for note in self.notes]
        lines += [f"\n{finding}" for finding in self.findings]
        return "\n".join(lines)
