"""A trace as plain text."""

from __future__ import annotations

import textwrap

from regard.tracing.labels import columns
from regard.tracing.panels import Grid, Panel, caption, panels
from regard.tracing.steps import Steps

__all__ = ["as_text"]

# The widths of sentences and of tables, in characters.
WIDTH, TABLE = 100, 120
ROWS = 16


def as_text(trace: Steps, query: int | str | None = None, head: int = 0, batch: int = 0) -> str:
    """Every step with its formula, its sentence, its numbers and the arithmetic of one cell."""
    blocks = [f"Attention, step by step: {caption(trace, query, head, batch)}"]
    for number, panel in enumerate(panels(trace, query, head, batch), start=1):
        blocks.append("\n".join(_block(number, panel)))
    return "\n\n".join(blocks)


def _block(number: int, panel: Panel) -> list[str]:
    lines = [f"{number}. {panel.formula}"]
    lines += textwrap.wrap(panel.sentence, WIDTH, initial_indent="   ", subsequent_indent="   ")
    for grid in panel.fitted(ROWS, TABLE - 3):
        lines += [f"   {line}".rstrip() for line in _table(grid)]
    if panel.worked:
        lines += textwrap.wrap(panel.worked, WIDTH, initial_indent="   → ", subsequent_indent="     ")
    return lines


def _table(grid: Grid) -> list[str]:
    lines = [["", *grid.columns], *([row, *texts] for row, texts in zip(grid.rows, grid.texts, strict=True))]
    widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(_padded, line, widths, range(len(line)))) for line in lines]


def _padded(text: str, width: int, column: int) -> str:
    """Names to the left, numbers to the right."""
    space = " " * (width - columns(text))
    return space + text if column else text + space
