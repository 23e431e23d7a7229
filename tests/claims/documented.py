"""The page that the program wrote, read back."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DOCS", "statements", "verdicts"]

DOCS = Path(__file__).parents[2] / "docs"


def _sections() -> dict[str, str]:
    parts = re.split(r"^### (\S+)$", (DOCS / "claims.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def statements() -> dict[str, str]:
    """What each claim says, by id."""
    return {name: re.findall(r"^> (.+)$", text, re.MULTILINE)[0] for name, text in _sections().items()}


def verdicts() -> dict[str, str]:
    """What became of each claim, by id."""
    return {
        name: re.findall(r"^\*\*(.+?)\.\*\* ", text, re.MULTILINE)[0].lower()
        for name, text in _sections().items()
    }
