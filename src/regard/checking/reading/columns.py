"""Converts CSV, tab-separated and HTML tables to | columns |."""

from __future__ import annotations

import re
from html import unescape

from regard.checking.names import TABLES, step_named
from regard.checking.reading.numbers import is_cell

__all__ = ["with_columns"]


def with_columns(text: str) -> str:
    """The text with CSV and HTML tables converted to | columns |.

    >>> print(with_columns("token,score\\nthe,1.0\\ncat,3.0"))
    | token | score |
    | the | 1.0 |
    | cat | 3.0 |
    >>> with_columns("scores: 1, 2")
    'scores: 1, 2'
    """
    if re.search(r"<t[dh][\s>]", text, re.IGNORECASE):
        text = _without_html(text)
    lines, at = text.splitlines(), 0
    out: list[str] = []
    while at < len(lines):
        rows = _block(lines[at:])
        out += [f"| {' | '.join(row)} |" for row in rows] or [lines[at]]
        at += max(1, len(rows))
    return "\n".join(out)


def _block(lines: list[str]) -> list[list[str]]:
    """The cells of the table that begins here: a header, and numbers in the same columns below."""
    for sign in (",", "\t", ";", "  "):
        header = _cells(lines[0], sign)
        if len(header) < 2 or not all(re.fullmatch(r"[^\W\d][^=:\[\]|]*", cell) for cell in header):
            continue
        if sign == "  " and not all(step_named(cell) in TABLES for cell in header[1:]):
            continue
        rows = [header]
        for line in lines[1:]:
            cells = _cells(line, sign)
            if len(cells) != len(header) or not all(map(is_cell, cells[1:])):
                break
            rows.append(cells)
        if len(rows) > 1:
            return rows
    return []


def _cells(line: str, sign: str) -> list[str]:
    """Split a line at a separator, or at runs of spaces."""
    return (
        re.split(r"\s{2,}|\t", line.strip()) if sign == "  " else [cell.strip() for cell in line.split(sign)]
    )


def _without_html(text: str) -> str:
    text = re.sub(r"\s*\n\s*(?=</?(?:td|th|tr|tbody|thead)\b)", "", text, flags=re.IGNORECASE)
    text = re.sub(r"<tr\b[^>]*>", "\n|", text, flags=re.IGNORECASE)
    text = re.sub(r"</t[dh]>", " |", text, flags=re.IGNORECASE)
    return unescape(re.sub(r"</?[a-zA-Z][^<>]*>", " ", text))
