"""The pages of the documentation, and the code on them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(markdown: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)


def commands(markdown: str) -> list[str]:
    """What follows `regard` in the ```bash blocks of a page; not what waits for a browser."""
    lines = [line for block in blocks(markdown, "bash") for line in block.splitlines()]
    return [m[1] for line in lines if (m := re.match(r"regard (?!view)(.+?)(?: +#.*)?$", line))]
