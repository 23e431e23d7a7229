"""Tokens as labels."""

from __future__ import annotations

__all__ = ["visible"]

# Symbols for invisible tokens.
SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣", "": "∅"}


def visible(text: str) -> str:
    """Make a token readable: trim outer spaces and replace invisible characters by symbols.

    >>> visible(" cat"), visible("\\n\\n"), visible("")
    ('cat', '⏎⏎', '∅')
    """
    return text.strip(" ") if text.strip() else "".join(SIGNS.get(c, c) for c in text or [""])
