"""Figures of claims, in regard's common colours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.claims.pictures import Bars, Curves, Picture
from regard.plots import curves, heatmap
from regard.plots.curves import COLOURS
from regard.plots.drawing import SOFT, blank

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save"]

# The most lines to name inside the axes, and the most points with a tick each.
INSIDE, TICKS = 3, 12


def draw(picture: Picture, title: str | None = None) -> Figure:
    """The figure of a measurement.

    >>> figure = draw(Bars(["before", "after"], {"loss": [3.0, 2.5]}, "nats"), "scale-training")
    >>> figure.axes[0].get_ylabel()
    'nats'
    """
    if isinstance(picture, Curves):
        return _curves(picture, title)
    if isinstance(picture, Bars):
        return _bars(picture, title)
    return heatmap(
        torch.tensor(picture.cells, dtype=torch.float64),
        picture.row_labels,
        picture.column_labels,
        annotate=picture.annotate,
        title=title,
        row_title=picture.rows,
        column_title=picture.columns,
        limit=picture.limit,
    )


def save(picture: Picture, path: Path, title: str | None = None) -> None:
    """Write a figure as SVG, or in the format of the suffix; the same picture gives the same file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "regard"}):
        draw(picture, title).savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _curves(picture: Curves, title: str | None) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure = curves(picture.lines, x_title=picture.x, y_title=picture.y, title=title)
    axes = figure.axes[0]
    if "x" in picture.log:
        axes.set_xscale("log")
        _tick_points(axes, sorted({x for xs, _ in picture.lines.values() for x in xs}))
    elif all(isinstance(x, int) for xs, _ in picture.lines.values() for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if "y" in picture.log:
        axes.set_yscale("log")
    if picture.dots:
        for line in axes.get_lines():
            line.set(linestyle="none", marker="o", markersize=3.5)
    _name_lines(figure, axes, len(picture.lines))
    figure.set_size_inches(5.4, 3.0 + 0.16 * (len(picture.lines) > INSIDE) * len(picture.lines))
    return figure


def _tick_points(axes: Axes, points: Sequence[float]) -> None:
    """Set a tick at each measured point, if there are few."""
    if len(points) <= TICKS:
        axes.set_xticks(points, [_short(x) for x in points])
        axes.set_xticks([], minor=True)


def _short(x: float) -> str:
    """512, 8k, 1M: lengths are powers of two more often than not."""
    for size, unit in ((2**20, "M"), (2**10, "k")):
        if x >= size and x % size == 0:
            return f"{int(x) // size}{unit}"
    return f"{x:,g}" if x < 1e6 else f"{x:g}"


def _name_lines(figure: Figure, axes: Axes, count: int) -> None:
    """Name the lines: a single one not at all, a few inside the axes, more of them below."""
    inside = axes.get_legend()
    if inside is not None:
        inside.remove()
    if 1 < count <= INSIDE:
        axes.legend(frameon=False, fontsize=8)
    elif count > INSIDE:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)


def _bars(picture: Bars, title: str | None) -> Figure:
    count = len(picture.series)
    figure = blank(5.4, 3.3 if count > 1 else 3.0)
    axes = figure.add_subplot()
    width = 0.8 / count
    for number, (name, values) in enumerate(picture.series.items()):
        places = [i + (number - (count - 1) / 2) * width for i in range(len(values))]
        axes.bar(places, values, width * 0.92, color=COLOURS[number % len(COLOURS)], label=name)
    if picture.level is not None:
        axes.axhline(picture.level, color=SOFT, linewidth=0.9, linestyle="--")
    _dress(axes, picture, title)
    if count > 1:
        figure.legend(loc="outside lower center", ncols=count, frameon=False, fontsize=8)
    return figure


def _dress(axes: Axes, picture: Bars, title: str | None) -> None:
    """As `curves` dresses its axes, with a name under every group of bars that has one."""
    named = [i for i, label in enumerate(picture.labels) if label]
    axes.set_xticks(named, [picture.labels[i] for i in named], parse_math=False)
    if sum(map(len, picture.labels)) > 64:
        axes.set_xticklabels(axes.get_xticklabels(), rotation=20, ha="right", rotation_mode="anchor")
    axes.set_xlabel(picture.x, color=SOFT)
    axes.set_ylabel(picture.y, color=SOFT)
    axes.set_title(title or "", fontsize=11, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, labelcolor=SOFT, color=SOFT)
    axes.grid(axis="y", color="#eceef1", linewidth=0.8)
    axes.set_axisbelow(True)
