"""A trace in a terminal, its tables shaded. Rich loads when the first one is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.plots import ink, shade
from regard.tracing.panels import Grid, caption, panels

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from regard.tracing.result import Trace

__all__ = ["as_rich"]

ROWS, COLUMNS = 24, 12


def as_rich(trace: Trace, query: int | str | None = None, head: int = 0, batch: int = 0) -> Group:
    """Every step as a heading, a sentence, a shaded table and one cell worked out."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Text | Padding] = [Text(f"Attention, step by step: {caption(trace, query, head, batch)}", "dim")]
    for number, panel in enumerate(panels(trace, query, head, batch), start=1):
        parts += [
            Text(),
            Text.assemble((f"{number}  ", "dim"), (panel.formula, "bold")),
            Padding(Text(panel.sentence), (0, 0, 0, 3)),
            Padding(_table(panel.grid(ROWS, COLUMNS)), (0, 0, 0, 3)),
        ]
        if panel.worked:
            parts.append(Padding(Text(f"→ {panel.worked}", "italic"), (0, 0, 0, 3)))
    return Group(*parts)


def _table(grid: Grid) -> Table:
    from rich.table import Table
    from rich.text import Text

    # Text, not markup: a token may well be called "[bold]".
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column()
    for name in grid.columns:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for name, texts, levels in zip(grid.rows, grid.texts, grid.levels, strict=True):
        table.add_row(Text(name, "dim"), *(_cell(t, level) for t, level in zip(texts, levels, strict=True)))
    return table


def _cell(text: str, level: float | None) -> Text:
    from rich.text import Text

    if level is None:
        return Text(text, "dim")
    color = shade(level, dark=True)
    return Text(f" {text} ", f"{ink(color)} on {color}")
