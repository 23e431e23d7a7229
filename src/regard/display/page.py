"""HTML that stands in a notebook's cell: no scripts, no files, readable on light and dark."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

from torch import Tensor

__all__ = ["figure", "page", "pixels", "table"]

# Rows of a table before the rest is only counted.
ROWS = 40
CELL = "padding:.15em .7em;border-bottom:1px solid #8884"


def page(title: str, facts: str, *parts: str) -> str:
    """A heading, a line of facts, and whatever else there is."""
    head = f'<div><b>{escape(title)}</b> <span style="opacity:.7">{escape(facts)}</span></div>'
    return f'<div style="font-family:system-ui,sans-serif;font-size:13px">{head}{"".join(parts)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table: numbers to the right, everything escaped, long ones cut with a note."""
    heads = "".join(f'<th style="{CELL};text-align:left;opacity:.7">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:ROWS])
    more = f'<p style="opacity:.7">… and {len(rows) - ROWS} more.</p>' if len(rows) > ROWS else ""
    style = "border-collapse:collapse;margin:.5em 0"
    return f'<table style="{style}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}'


def figure(png: str, caption: str, size: int = 128) -> str:
    """A small picture, enlarged without blur, with a line below it."""
    picture = (
        f'<img src="{png}" alt="{escape(caption)}" width="{size}" height="{size}" '
        'style="image-rendering:pixelated;background:#fff;border-radius:3px">'
    )
    return (
        f'<figure style="display:inline-block;margin:.5em .6em .2em 0;text-align:center">{picture}'
        f'<figcaption style="opacity:.7">{escape(caption)}</figcaption></figure>'
    )


def pixels(cells: Tensor) -> str:
    """A matrix as a data URL: one pixel a cell, coloured as all maps are."""
    from matplotlib.image import imsave

    from regard.plots import colour_cells

    out = io.BytesIO()
    imsave(out, colour_cells(cells), format="png", metadata={"Software": ""})
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def _cell(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'<td style="{CELL};text-align:{"right" if number else "left"}">{escape(text)}</td>'
