"""A mistake in an attention implementation, with its evidence."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["Finding", "Mistake", "mistakes"]


@dataclass(frozen=True)
class Mistake:
    """A known mistake: what it is, why it matters, and minimal code with and without it."""

    code: str
    title: str
    why: str
    mend: str
    wrong: str
    right: str


@cache
def mistakes() -> dict[str, Mistake]:
    """All known mistakes, by code.

    >>> mistakes()["missing-scale"].title
    'The scores are not divided by √d_k'
    """
    text = resources.files("regard.doctor").joinpath("mistakes.toml").read_text(encoding="utf-8")
    return {code: Mistake(code, **entry) for code, entry in tomllib.loads(text).items()}


@dataclass(frozen=True)
class Finding:
    """A mistake that was found, and the evidence.

    `example` is the smallest input that shows it, with the expected and the actual output; `line` is the line
    of the user's code that causes it; `fix` is corrected code with the user's names.

    >>> print(Finding("missing-scale", "equals the formula with scale 1 to 3e-08").title)
    The scores are not divided by √d_k
    """

    code: str
    evidence: str
    example: dict[str, str] = field(default_factory=dict)
    line: str = ""
    fix: str = ""

    @property
    def mistake(self) -> Mistake:
        """The known mistake of this finding."""
        return mistakes()[self.code]

    @property
    def title(self) -> str:
        """The mistake in a sentence."""
        return self.mistake.title

    def as_dict(self) -> dict[str, Any]:
        """The finding and its mistake as plain data for JSON."""
        own = {"evidence": self.evidence, "example": dict(self.example), "line": self.line, "fix": self.fix}
        return {**own, **asdict(self.mistake)}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Finding:
        """The finding that `as_dict` wrote."""
        return cls(found["code"], found["evidence"], found["example"], found["line"], found["fix"])

    def __str__(self) -> str:
        known = self.mistake
        lines = [f"{known.title}  [{self.code}]", f"  evidence  {self.evidence}"]
        lines += [f"  {key:<9} {value}" for key, value in self.example.items()]
        lines += [f"  line      {self.line}"] if self.line else []
        lines += [f"  why       {known.why}", f"  mend      {known.mend}"]
        if self.fix:
            return "\n".join([*lines, f"  write     {self.fix}"])
        return "\n".join([*lines, f"  instead of  {known.wrong}", f"  write       {known.right}"])
