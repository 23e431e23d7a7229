"""One thing that is wrong with an attention, with the numbers that show it."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources

__all__ = ["Finding", "Mistake", "mistakes"]


@dataclass(frozen=True)
class Mistake:
    """A known mistake: what it is, why it matters, and the smallest code that has it and has it not."""

    code: str
    title: str
    why: str
    mend: str
    wrong: str
    right: str


@cache
def mistakes() -> dict[str, Mistake]:
    """Every mistake the doctor knows, by its code.

    >>> mistakes()["missing-scale"].title
    'The scores are not divided by √d_k'
    """
    text = resources.files("regard.doctor").joinpath("mistakes.toml").read_text(encoding="utf-8")
    return {code: Mistake(code, **entry) for code, entry in tomllib.loads(text).items()}


@dataclass(frozen=True)
class Finding:
    """A mistake that was found, and the evidence.

    >>> print(Finding("missing-scale", "equals the formula with scale 1 to 3e-08").title)
    The scores are not divided by √d_k
    """

    code: str
    evidence: str

    @property
    def mistake(self) -> Mistake:
        """What is known about this mistake."""
        return mistakes()[self.code]

    @property
    def title(self) -> str:
        """The mistake in a sentence."""
        return self.mistake.title

    def as_dict(self) -> dict[str, str]:
        """The finding and all that is known about its mistake, as JSON can hold it."""
        return {"evidence": self.evidence, **asdict(self.mistake)}

    def __str__(self) -> str:
        known = self.mistake
        return "\n".join(
            [
                f"{known.title}  [{self.code}]",
                f"  evidence  {self.evidence}",
                f"  why       {known.why}",
                f"  mend      {known.mend}",
                f"  instead of  {known.wrong}",
                f"  write       {known.right}",
            ]
        )
