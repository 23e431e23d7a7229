"""Tables where the terminal is narrower than they are: a row as lines, so that no number is cut off."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["as_lines", "width_of"]

# Text in a cell may be folded to this width before the table counts as too wide.
FOLDED = 24
EMPTY = ("", "–")


def width_of(table: Table) -> int:
    """The least width at which the table can be read: numbers whole, text folded, names of columns whole."""
    edges = 4 if table.box is not None and table.show_edge else 0
    padding = 3 if table.box is not None else 2
    widths = []
    for name, cells in _columns(table):
        longest = max((len(cell) for cell in cells), default=0)
        folds = longest > FOLDED and any(" " in cell for cell in cells)
        widths.append(max(len(name), FOLDED if folds else longest))
    return sum(widths) + padding * max(0, len(widths) - 1) + edges


def as_lines(table: Table, width: int) -> str:
    """Every row as a paragraph of `name value`, empty cells left out."""
    columns = _columns(table)
    paragraphs = []
    for row in zip(*(cells for _, cells in columns), strict=True):
        named = zip((name for name, _ in columns), row, strict=True)
        parts = [f"{name} {cell}".strip() for name, cell in named if cell.strip() not in EMPTY]
        # A part stays whole where it fits: its spaces do not break.
        kept = [part.replace(" ", "\u00a0") if len(part) < width - 2 else part for part in parts]
        lines = wrap(" · ".join(kept), width, subsequent_indent="  ", break_on_hyphens=False)
        paragraphs.append("\n".join(lines).replace("\u00a0", " "))
    title, caption = (_plain(part) for part in (table.title, table.caption))
    return "\n".join(part for part in (title, *paragraphs, caption) if part)


def _columns(table: Table) -> list[tuple[str, list[str]]]:
    return [(_plain(column.header), [_plain(cell) for cell in column.cells]) for column in table.columns]


def _plain(cell: Any) -> str:
    from rich.text import Text

    if cell is None:
        return ""
    return " ".join((cell if isinstance(cell, Text) else Text.from_markup(str(cell))).plain.split())
