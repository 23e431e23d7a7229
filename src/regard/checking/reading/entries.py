"""Reads the cells of a map that are given one by one: q·k1 = 112, s_{12} = 96, α_1 = 0.88."""

from __future__ import annotations

import re
from typing import NamedTuple

from regard.checking.reading.draft import Draft
from regard.checking.reading.numbers import CELL

__all__ = ["without_entries"]

_INDEX = r"_?\{?\s*(\w+)\s*\}?"
# The calculation may come between the name and its number: q·k1 = 1×2 + 0×1 = 2.
_VALUE = rf"\s*(?:[=≈](?-i:[^=≈;,\na-df-zA-Z]*))*[=≈]\s*(?P<value>{CELL})(?!\d|\.\d|\s*[-+×*/·^]\s*[\d(e√])"
_PRODUCT = re.compile(
    rf"(?<![\w·])q(?:_?\{{?(?P<row>\d+|(?<=_\{{)\w+|(?<=_)\w+)\}}?)?(?:ᵀ|\^T)?\s*[·⋅•∙.*@]\s*k_?\{{?(?P<column>\w+)\}}?"
    rf"(?:ᵀ|\^T)?(?P<by>\s*[/÷]\s*(?:√\s*\(?\w+\)?|\d+))?{_VALUE}",
    re.IGNORECASE,
)
_CALLED = re.compile(
    rf"(?<!\w)(?P<name>scores?|sim|weights?)\s*\(\s*q_?\{{?(?P<row>\w*)\}}?\s*,\s*k_?\{{?(?P<column>\w+)\}}?\s*\){_VALUE}",
    re.IGNORECASE,
)
_INDEXED = re.compile(
    rf"(?<![\w\\])(?P<name>score|weight|alpha|s|e|α|a|w)_\{{?(?P<row>\d)(?:\s*,\s*|\s)?(?P<column>\d)?\}}?{_VALUE}",
    re.IGNORECASE,
)
_WEIGHTS = ("weight", "weights", "alpha", "α", "a", "w")


class _Entry(NamedTuple):
    name: str
    row: str
    column: str
    text: str


def without_entries(text: str, draft: Draft) -> str:
    """The text without such entries, which are added to the draft as tables.

    >>> draft = Draft()
    >>> without_entries("q·k1 = 112 and q·k2 = 96", draft)
    ' and '
    >>> [cell.text for cell in draft.tables["scores"].cells[0]]
    ['112', '96']
    """
    found: list[_Entry] = []
    spans: list[tuple[int, int]] = []
    for pattern in (_PRODUCT, _CALLED, _INDEXED):
        for match in pattern.finditer(text):
            if not any(start < match.end() and match.start() < end for start, end in spans):
                found.append(_entry(match))
                spans.append(match.span())
    kept = {name for name in {each.name for each in found} if _add(draft, name, found)}
    cut = sorted(span for span, each in zip(spans, found, strict=True) if each.name in kept)
    for start, end in reversed(cut):
        text = text[:start] + text[end:]
    return text


def _entry(match: re.Match[str]) -> _Entry:
    parts = match.groupdict()
    called = (parts.get("name") or "scores").lower()
    name = "weights" if called in _WEIGHTS else "scaled" if parts.get("by") else "scores"
    row, column = parts["row"] or "", parts["column"]
    # One index counts keys: α_2 is the weight of the second one.
    return _Entry(name, row if column else "", column or row, parts["value"].removesuffix("."))


def _add(draft: Draft, name: str, found: list[_Entry]) -> bool:
    """Add the entries of a name as a table if they are complete; returns whether they are."""
    entries = [each for each in found if each.name == name]
    rows = list(dict.fromkeys(each.row for each in entries))
    columns = list(dict.fromkeys(each.column for each in entries))
    cells = {(each.row, each.column): each.text for each in entries}
    if len(entries) < 2 or len(cells) != len(entries) or len(cells) != len(rows) * len(columns):
        return False
    labels = columns if any(not label.isdigit() for label in columns) else []
    draft.add(
        name,
        [[cells[row, column] for column in columns] for row in rows],
        flat=len(rows) == 1,
        columns=labels,
    )
    return True
