"""Renders a trace for the terminal with shaded tables. Rich is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.plots import ink, shade
from regard.tracing.labels import columns
from regard.tracing.panels import Grid, caption, panels
from regard.tracing.steps import Steps

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

__all__ = ["as_rich"]

ROWS, WIDTH = 24, 100


def as_rich(
    trace: Steps, query: int | str | None = None, head: int = 0, batch: int = 0, width: int = WIDTH
) -> Group:
    """Every step as a heading, a sentence, a shaded table (shortened if it doesn't fit), and the arithmetic
    of one cell."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Text | Padding] = [
        Text(f"Attention, step by step: {caption(trace, query, head, batch)}", "dim")
    ]
    for number, panel in enumerate(panels(trace, query, head, batch), start=1):
        parts += [
            Text(),
            Text.assemble((f"{number}  ", "dim"), (panel.formula, "bold")),
            Padding(Text(panel.sentence), (0, 0, 0, 3), expand=False),
        ]
        parts += [Padding(_table(grid), (0, 0, 0, 3), expand=False) for grid in panel.fitted(ROWS, width - 4)]
        if panel.worked:
            parts.append(Padding(Text(f"→ {panel.worked}", "italic"), (0, 0, 0, 3), expand=False))
    return Group(*parts)


def _table(grid: Grid) -> Table:
    from rich.table import Table
    from rich.text import Text

    # Use Text, because a token such as "[bold]" would be taken for markup.
    table = Table(box=None, padding=0, header_style="dim")
    table.add_column(no_wrap=True)
    widths = [max(map(columns, column)) for column in zip(grid.columns, *grid.texts, strict=True)]
    for name, width in zip(grid.columns, widths, strict=True):
        table.add_column(_cell(name, width, None), no_wrap=True)
    for name, texts, levels in zip(grid.rows, grid.texts, grid.levels, strict=True):
        table.add_row(Text(f"{name} ", "dim"), *map(_cell, texts, widths, levels))
    return table


def _cell(text: str, width: int, level: float | None) -> Text:
    from rich.text import Text

    # Pad here, because the table would not shade its own padding.
    padded = f" {' ' * (width - columns(text))}{text} "
    if level is None:
        return Text(padded, "dim")
    color = shade(level, dark=True)
    return Text(padded, f"{ink(color)} on {color}")
