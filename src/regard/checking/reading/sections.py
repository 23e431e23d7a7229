"""Splits pasted text into examples: lines of softmax(…) = …, parts under headings, heads that are joined."""

from __future__ import annotations

import re
from collections.abc import Iterator

from regard.checking.reading.draft import Draft
from regard.checking.reading.plain import JOINED, Text
from regard.errors import RegardError

__all__ = ["drafts_of_text"]

# A heading that begins a new example.
_PART = re.compile(
    r"^[\W_]*((?:head|example|query|sample|case|batch|attention head)\s*#?\d+)[\W_]*$",
    re.MULTILINE | re.IGNORECASE,
)


def drafts_of_text(text: str) -> Iterator[Draft]:
    """The examples in a text: one, or one per line with softmax(…) = …."""
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [
        line
        for line in lines
        if re.match(r"\s*(?:[-*\d.]+\s+)?softmax\s*[(\[]", line, re.IGNORECASE) and re.search(r"[=≈→]", line)
    ]
    others = [line for line in lines if line not in rows]
    if len(rows) > 1 and not _holds_tables("\n".join(others)):
        for line in rows:
            draft = Text(re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", line)).read()
            draft.name = line.strip().partition("=")[0].strip()
            yield draft
        return
    before, parts = _sections(text)
    if len(parts) < 2:
        yield from Text(text).read().split()
        return
    if JOINED.search(parts[-1][1]):
        yield from _joined(before, parts)
        return
    for name, part in parts:
        draft = Text(f"{before}\n{part}").read()
        draft.name = name
        yield from draft.split()


def _holds_tables(text: str) -> bool:
    """Whether a text has tables besides lines with softmax(…) = …."""
    try:
        draft = Text(text).read()
    except RegardError:
        return True
    # Every such line contains its own logits.
    return bool(set(draft.tables) - {"scores"} or draft.maps or draft.heads or draft.scale)


def _joined(before: str, parts: list[tuple[str, str]]) -> Iterator[Draft]:
    """Heads under separate headings, followed by the text that joins their outputs."""
    name, last = parts[-1]
    lines = last.splitlines()
    at = next((i for i, line in enumerate(lines) if JOINED.search(line)), len(lines))
    parts = [*parts[:-1], (name, "\n".join(lines[:at]))]
    whole = Text("\n".join(lines[at:])).read()
    for name, part in parts:
        draft = _head(before, part)
        draft.name = name
        output = draft.tables.get("output")
        if output is not None:
            whole.add_head([[cell.text for cell in row] for row in output.cells])
        if len(draft.tables) > 1:
            yield from draft.split()
    yield from whole.split()


def _head(before: str, part: str) -> Draft:
    """One head's part of a text; an unnamed table is its output."""
    try:
        draft = Text(f"{before}\n{part}").read()
    except RegardError:
        return Text(f"output:\n{part}").read()
    return draft if draft.tables else Text(f"output:\n{part}").read()


def _sections(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The parts of a text under headings such as Head 1 and Example 2, and the part before them."""
    before, *found = _PART.split(text)
    parts = list(zip(found[::2], found[1::2], strict=True))
    numbered = len({name.casefold() for name, _ in parts}) == len(parts)
    return before, parts if numbered and all(re.search(r"\d", part) for _, part in parts) else []
