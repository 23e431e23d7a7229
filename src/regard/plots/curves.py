"""Line plots: a number by distance, position or depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regard.errors import ShapeError
from regard.plots.colours import shade
from regard.plots.drawing import SOFT, blank, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves", "panels"]

# The most lines to distinguish by names and colours.
NAMED = 6
COLOURS = ("#1f5fb0", "#d3712b", "#2f7d5b", "#8a4fa3", "#b0475a", "#6b7280")


Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def curves(
    lines: Lines,
    *,
    x_title: str,
    y_title: str,
    title: str | None = None,
    logarithmic: bool = False,
    emphasis: Sequence[str] = (),
    ax: Axes | None = None,
) -> Figure:
    """Lines by name, each (x, y), on linear axes or on logarithmic ones; in `ax`, if given.

    Few lines are coloured and named; of many lines, only those in `emphasis`, and the others are pale.

    >>> figure = curves({"L0 H1": ([1, 2, 4], [0.5, 0.2, 0.1])}, x_title="distance", y_title="mean weight")
    >>> figure.axes[0].get_xlabel()
    'distance'
    """
    if ax is not None:
        _draw(ax, lines, logarithmic, emphasis, outside=False)
        ax.set(xlabel=x_title, ylabel=y_title)
        ax.set_title(title or "", fontsize=11, parse_math=False)
        return whole_figure(ax)
    return panels({y_title: lines}, x_title=x_title, title=title, logarithmic=logarithmic, emphasis=emphasis)


def panels(
    by_unit: Mapping[str, Lines],
    *,
    x_title: str,
    title: str | None = None,
    logarithmic: bool = False,
    emphasis: Sequence[str] = (),
) -> Figure:
    """Panels of curves above each other, each with its own vertical axis, named by its key.

    >>> line = {"a": ([1, 2], [3, 4])}
    >>> figure = panels({"FLOPs": line, "bytes": line}, x_title="tokens")
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['FLOPs', 'bytes']
    """
    figure = blank(6.0, 3.6 if len(by_unit) == 1 else 2.7 * len(by_unit))
    rows = figure.subplots(len(by_unit), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (y_title, lines) in zip(rows, by_unit.items(), strict=True):
        _draw(axes, lines, logarithmic, emphasis)
        axes.set_ylabel(y_title, color=SOFT)
    rows[-1].set_xlabel(x_title, color=SOFT)
    rows[0].set_title(title or "", fontsize=11, parse_math=False)
    return figure


def _draw(axes: Axes, lines: Lines, logarithmic: bool, emphasis: Sequence[str], outside: bool = True) -> None:
    if not lines:
        raise ShapeError("curves got no lines; give at least one, as name: (x, y).")
    for name, (x, y) in lines.items():
        if len(x) != len(y):
            raise ShapeError(f"line {name!r} has {len(x)} x and {len(y)} y; they must be as many.")
    bright = list(emphasis) or (list(lines) if len(lines) <= NAMED else [])
    for name in sorted(lines, key=lambda name: name in bright):  # the pale ones lie beneath
        x, y = lines[name]
        # A line of one point would be invisible, so draw a marker.
        marker = "o" if len(x) == 1 else None
        if name in bright:
            colour = COLOURS[bright.index(name) % len(COLOURS)]
            axes.plot(x, y, color=colour, linewidth=1.8, marker=marker, label=name)
        else:
            axes.plot(x, y, color=shade(0.2), linewidth=0.8, marker=marker)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, labelcolor=SOFT, color=SOFT)
    axes.grid(color="#eceef1", linewidth=0.8)
    if len(lines) > NAMED and bright and outside:
        # With many lines there is hardly a free place for a legend, and searching for one takes longer than
        # drawing.
        axes.figure.legend(loc="outside lower center", ncols=min(3, len(bright)), frameon=False, fontsize=8)
    elif bright:
        axes.legend(frameon=False, fontsize=8)
