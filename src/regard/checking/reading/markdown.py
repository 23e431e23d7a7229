"""Reads tables in | columns |: a matrix, one step per column, or one step per row."""

from __future__ import annotations

import re
from dataclasses import dataclass

from regard.checking.names import TABLES as STEPS
from regard.checking.names import step_named
from regard.checking.reading.draft import MAPS, Draft, is_head, scale_in
from regard.checking.reading.numbers import is_cell, only_numbers
from regard.errors import RegardError

__all__ = ["add_table", "is_row"]

TABLES = (*STEPS, "mask")
# The query of a row, after the name of its step: scores q1, weights (token 2), scores for query 1.
_OWNER = re.compile(
    r"\s*(?:of|for)?\s*\(?\b(?:[qkvx]_?\d+|(?:query|token|row|position)\s*\d+)\)?$", re.IGNORECASE
)


def is_row(line: str) -> bool:
    """Whether a line is part of a table in columns."""
    return line.count("|") >= 2 or bool(
        re.fullmatch(r"[^|]+\|[^|]+", line.strip()) and not line.rstrip().endswith(":")
    )


@dataclass(frozen=True)
class _Table:
    header: list[str]
    body: list[list[str]]

    def column(self, i: int) -> list[str]:
        return [row[i] if i < len(row) else "" for row in self.body]

    @property
    def labels(self) -> list[str]:
        """The first column, if it has names instead of numbers."""
        first = self.column(0)
        named = bool(self.header and not is_cell(self.header[0])) and not all(map(is_cell, first))
        return first if named or not any(map(is_cell, first)) else []


def add_table(draft: Draft, lines: list[str], pending: str | None) -> None:
    """Read the lines of one table into a draft; `pending` is the step named by the text before it."""
    table = _parsed(lines)
    named = {i: step for i, cell in enumerate(table.header) if (step := _named(cell)) in TABLES}
    numeric = [i for i in named if all(_vector(cell) or not cell for cell in table.column(i))]
    beside = [_named(_OWNER.sub("", cell)) for cell in table.labels]
    if numeric and (pending is None or len(named) > 1):
        for i in numeric:
            _add_column(draft, named[i], table, i)
    elif beside and all(step in TABLES for step in beside) and len(set(beside)) == len(beside):
        heads = [cell for cell in table.header[1:] if not is_cell(cell)]
        for step, row in zip(beside, table.body, strict=True):
            draft.add(str(step), [row[1:]], flat=True, columns=heads)
            if step == "scaled" and (scale := scale_in(row[0])) is not None:
                draft.set_scale(scale)
        if heads and not draft.key_tokens and len(heads) > 1:
            draft.key_tokens = tuple(heads)
    else:
        # A corner such as "query" says what the rows are, unless rows are only numbers.
        corner = named.get(0) if table.header and not (table.labels and len(table.header[0]) > 1) else None
        name = pending or corner
        if name is None:
            raise RegardError(
                "a table has no name of a step; write one above it, such as 'weights:', or name its columns."
            )
        _add_matrix(draft, name, table)


def _add_matrix(draft: Draft, name: str, table: _Table) -> None:
    labels = table.labels
    skip = 1 if labels else 0
    rows = [row[skip:] for row in table.body]
    if name not in TABLES and is_head(name, joined=True):
        draft.add_head(rows)
        return
    columns = [cell for cell in table.header[skip:] if cell]
    if name in MAPS and columns and re.fullmatch(r"(?i)(?:row\s*)?(?:sum|total)|[Σ∑]\w*", columns[-1]):
        # A column next to weights may be their sum.
        rows, columns = [row[: len(columns) - 1] for row in rows], columns[:-1]
        draft.notes.append("The column of sums is left out.")
    width = max(map(len, rows))
    rows = [row + [""] * (width - len(row)) for row in rows]
    keys = columns if len(columns) == width else []
    draft.add(name, rows, rows=labels, columns=keys)
    if name in ("scores", "scaled", "masked", "weights"):
        draft.tokens = draft.tokens or tuple(labels)
        draft.key_tokens = draft.key_tokens or tuple(keys)


def _add_column(draft: Draft, name: str, table: _Table, i: int) -> None:
    cells = table.column(i)
    labels = table.labels
    vectors = [only_numbers(cell) if cell else [""] for cell in cells]
    if name in ("q", "k", "v", "x") or any(vector and len(vector) > 1 for vector in vectors):
        draft.add(name, [vector or [cell] for vector, cell in zip(vectors, cells, strict=True)], rows=labels)
    else:
        draft.add(name, [cells], flat=True, columns=labels)
    if labels and not draft.key_tokens:
        draft.key_tokens = tuple(labels)


def _named(cell: str) -> str | None:
    """The step of a heading; of single letters only q, k, v and x, because "a" is also a word."""
    name = step_named(cell)
    return name if len(cell) > 1 or name == cell.lower() else None


def _vector(cell: str) -> bool:
    return only_numbers(cell) is not None


def _parsed(lines: list[str]) -> _Table:
    rows = [[_bare(cell) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    rule = next(
        (i for i, row in enumerate(rows) if all(re.fullmatch(r":?-+:?|=+", c.strip()) for c in row)), None
    )
    rows = [row for i, row in enumerate(rows) if i != rule]
    first = rows[0]
    # The header is above the rule, or is a first row with words.
    if rule == 1 or (rule is None and sum(map(is_cell, first)) <= len(first) // 2):
        header, body = first, rows[1:]
        # Markdown requires a header, which may contain the first step with its numbers.
        steps = {_named(row[0]) for row in rows}
        listed = len(steps) == len(rows) and steps <= set(TABLES)
        if any(map(is_cell, first[1:])) and (rule is None or listed):
            header, body = [], rows
    else:
        header, body = [], rows
    if not body:
        raise RegardError("a table has a header and no rows; give its numbers.")
    return _Table(header, body)


def _bare(cell: str) -> str:
    return re.sub(r"[*`$]+|<[^>]+>", "", cell).replace("−", "-").strip()
