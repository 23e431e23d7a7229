"""What an examination came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.doctor.finding import Finding

__all__ = ["Diagnosis"]


@dataclass(frozen=True)
class Diagnosis:
    """The findings about one attention, how it was read, and remarks that accuse nobody.

    >>> print(Diagnosis("attention", reading={"layout": "bhnd"}))
    attention: nothing found.
      read as  layout bhnd
    """

    name: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    reading: dict[str, Any] | None = None

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings."""
        return tuple(finding.code for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "name": self.name,
            "healthy": self.healthy,
            "findings": [finding.as_dict() for finding in self.findings],
            "notes": list(self.notes),
            "reading": dict(self.reading or {}),
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Diagnosis:
        """The diagnosis that `as_dict` wrote."""
        findings = tuple(Finding(entry["code"], entry["evidence"]) for entry in found["findings"])
        return cls(found["name"], findings, tuple(found["notes"]), found["reading"])

    def __str__(self) -> str:
        count = len(self.findings)
        head = "nothing found." if not count else f"{count} finding{'s' if count > 1 else ''}."
        lines = [f"{self.name}: {head}"]
        if self.reading:
            lines.append("  read as  " + ", ".join(f"{key} {value}" for key, value in self.reading.items()))
        lines += [f"  note     {note}" for note in self.notes]
        lines += [f"\n{finding}" for finding in self.findings]
        return "\n".join(lines)
