"""A trace as a web page: one string, no scripts, nothing fetched, light or dark as the reader's screen is."""

from __future__ import annotations

from html import escape

from regard.plots import ink, shade
from regard.tracing.panels import Grid, Panel, caption, panels
from regard.tracing.steps import Steps

__all__ = ["as_fragment", "as_page"]

LEVELS = 24
COLUMNS = 64

STYLE = """
.regard{--page:#fff;--text:#1b1f24;--soft:#5b6470;--line:#e3e6ea;--blank:#f1f3f5;
font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);
max-width:60rem;margin:0 auto;padding:1rem}
.regard h1{font-size:1.25rem;margin:0}
.regard h2{font-size:1rem;margin:0;font-family:ui-monospace,monospace}
.regard section{border-top:1px solid var(--line);margin-top:1.25rem;padding-top:1rem}
.regard p{margin:.25rem 0 .75rem}
.regard .soft,.regard .worked{color:var(--soft)}
.regard .worked{font-size:.875rem;margin:.5rem 0 0}
.regard .scroll{overflow-x:auto}
.regard table{border-collapse:separate;border-spacing:2px;font-size:.875rem;font-variant-numeric:tabular-nums}
.regard th{font-weight:400;color:var(--soft);padding:.15rem .4rem;white-space:pre}
.regard thead th{text-align:right}
.regard tbody th{text-align:left;position:sticky;left:0;background:var(--page)}
.regard td{text-align:right;padding:.15rem .5rem;border-radius:3px;background:var(--blank);color:var(--soft)}
"""

DARK = "--page:#14171b;--text:#e6e8eb;--soft:#9aa4b0;--line:#2b3138;--blank:#1c2126"


def as_page(trace: Steps, query: int | str | None = None, head: int = 0, batch: int = 0) -> str:
    """A whole HTML document."""
    title = "Attention, step by step"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n"
        "<style>body{margin:0;background:#fff}\n"
        "@media (prefers-color-scheme:dark){body{background:#14171b}}</style>\n"
        f"</head>\n<body>\n{as_fragment(trace, query, head, batch)}\n</body>\n</html>\n"
    )


def as_fragment(trace: Steps, query: int | str | None = None, head: int = 0, batch: int = 0) -> str:
    """The part that a notebook shows: a style sheet of its own and one section per step."""
    sections = [_section(i, panel) for i, panel in enumerate(panels(trace, query, head, batch), start=1)]
    heading = (
        f'<h1>Attention, step by step</h1>\n<p class="soft">{escape(caption(trace, query, head, batch))}</p>'
    )
    return f'<div class="regard">\n<style>{_style()}</style>\n{heading}\n{"".join(sections)}</div>'


def _style() -> str:
    light, dark = (
        "\n".join(_rule(sign, step, theme) for sign in "np" for step in range(LEVELS + 1))
        for theme in (False, True)
    )
    return f"{STYLE}{light}\n@media (prefers-color-scheme:dark){{.regard{{{DARK}}}\n{dark}}}\n"


def _rule(sign: str, step: int, dark: bool) -> str:
    color = shade((-1 if sign == "n" else 1) * step / LEVELS, dark)
    return f".regard td.{sign}{step}{{background:{color};color:{ink(color)}}}"


def _section(number: int, panel: Panel) -> str:
    worked = f'<p class="worked">{escape(panel.worked)}</p>\n' if panel.worked else ""
    return (
        f"<section>\n<h2>{number}. {escape(panel.formula)}</h2>\n<p>{escape(panel.sentence)}</p>\n"
        f'<div class="scroll">{_table(panel.grid(COLUMNS, COLUMNS))}</div>\n{worked}</section>\n'
    )


def _table(grid: Grid) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in grid.columns)
    rows = (
        f'<tr><th scope="row">{escape(name)}</th>{"".join(map(_cell, texts, levels))}</tr>'
        for name, texts, levels in zip(grid.rows, grid.texts, grid.levels, strict=True)
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(text: str, level: float | None) -> str:
    if level is None:
        return f"<td>{escape(text)}</td>"
    return f'<td class="{"n" if level < 0 else "p"}{round(abs(level) * LEVELS)}">{escape(text)}</td>'
