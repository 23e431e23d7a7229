"""Renders a trace as a self-contained web page, without scripts, in light or dark mode."""

from __future__ import annotations

from collections.abc import Iterator

from regard.plots import ink, shade
from regard.templating import render
from regard.tracing.panels import Grid, caption, panels
from regard.tracing.steps import Steps

__all__ = ["as_fragment", "as_page"]

# The number of shades per colour, and the most rows and columns of a table.
LEVELS = 24
CELLS = 64


def as_page(trace: Steps, query: int | str | None = None, head: int = 0, batch: int = 0) -> str:
    """A whole HTML document."""
    return _rendered("page.html", trace, query, head, batch)


def as_fragment(trace: Steps, query: int | str | None = None, head: int = 0, batch: int = 0) -> str:
    """The HTML for a notebook: a style sheet and one section per step."""
    return _rendered("fragment.html", trace, query, head, batch)


def _rendered(template: str, trace: Steps, query: int | str | None, head: int, batch: int) -> str:
    found = []
    for panel in panels(trace, query, head, batch):
        grid = panel.grid(CELLS, CELLS)
        found.append((panel, grid.columns, list(_rows(grid))))
    said = caption(trace, query, head, batch)
    return str(render("regard.tracing", template, panels=found, caption=said, colors=_colors))


def _rows(grid: Grid) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """The name of each row, and the text and color class of each of its cells."""
    for name, texts, levels in zip(grid.rows, grid.texts, grid.levels, strict=True):
        yield name, [(text, _color(level)) for text, level in zip(texts, levels, strict=True)]


def _color(level: float | None) -> str | None:
    return None if level is None else f"{'n' if level < 0 else 'p'}{round(abs(level) * LEVELS)}"


def _colors(dark: bool) -> str:
    """The rule of every color class."""
    return "\n".join(_rule(sign, step, dark) for sign in "np" for step in range(LEVELS + 1))


def _rule(sign: str, step: int, dark: bool) -> str:
    color = shade((-1 if sign == "n" else 1) * step / LEVELS, dark)
    return f".regard td.{sign}{step}{{background:{color};color:{ink(color)}}}"
