"""Tokens as labels."""

from __future__ import annotations

__all__ = ["visible"]

# Tokens that would draw nothing, as they are drawn.
SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣", "": "∅"}


def visible(text: str) -> str:
    """A token as it can be seen: its outer spaces trimmed, signs for what would not show.

    >>> visible(" cat"), visible("\\n\\n"), visible("")
    ('cat', '⏎⏎', '∅')
    """
    return text.strip(" ") if text.strip() else "".join(SIGNS.get(c, c) for c in text or [""])
