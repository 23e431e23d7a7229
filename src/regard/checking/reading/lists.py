"""Replaces bracketed lists by placeholders, so that a matrix over several lines is one word."""

from __future__ import annotations

import re

from regard.checking.reading.numbers import CELL

__all__ = ["HELD", "held_lists"]

# The placeholder of a list.
HELD = re.compile("\x01(\\d+)\x02")


def held_lists(text: str, held: list[str]) -> str:
    """The text with every list of numbers replaced by its index in `held`.

    >>> held = []
    >>> held_lists("Q = [[1, 0],\\n [0, 1]]", held), held
    ('Q = \\x010\\x02', ['[[1, 0],\\n [0, 1]]'])
    """
    out, at = [], 0
    while at < len(text):
        end = _closing(text, at) if text[at] == "[" else None
        if end is None:
            out.append(text[at])
            at += 1
            continue
        out.append(f"\x01{len(held)}\x02")
        held.append(text[at : end + 1])
        at = end + 1
    return "".join(out)


def _closing(text: str, start: int) -> int | None:
    """The end of a bracketed list of numbers; None if it contains anything else."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        if depth == 0:
            inside = re.sub(rf"{CELL}|True|False|nan|None|'[^']*'|\"[^\"]*\"", "", text[start : at + 1])
            return at if re.fullmatch(r"[\[\]\s,;.…?]*", inside) else None
    return None
