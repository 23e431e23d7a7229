"""Helpers for figures of matrices: the canvas, hatching of masked cells, labels, grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "HIDDEN",
    "SOFT",
    "Labels",
    "blank",
    "canvas",
    "cell_in",
    "cell_size",
    "grid",
    "hatch",
    "label",
    "ticks",
    "whole_figure",
]

Labels = Sequence[list[str] | None]  # of the rows and of the columns

HIDDEN = "#eceef1"
HATCH = "#c9ced6"
SOFT = "#555b66"


def blank(width: float, height: float) -> Figure:
    """An empty figure of a size in inches, without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150)
    figure.set_layout_engine(
        "constrained", rect=(0.05 / width, 0.05 / height, 1 - 0.2 / width, 1 - 0.1 / height)
    )
    FigureCanvasAgg(figure)
    return figure


def canvas(shape: Sequence[int], labels: Labels, cell: float, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """An empty figure with space for a matrix and its labels; or the given axes and their figure."""
    if ax is not None:
        return whole_figure(ax), ax
    q, k = shape
    margins = [0.095 * max((len(label) for label in side or ["00"]), default=1) for side in labels]
    width, height = cell * k + margins[0] + 1.5, cell * q + min(margins[1], 1.2) + 1.1
    figure = blank(max(width, 2.6), max(height, 1.9))
    return figure, figure.add_subplot()


def whole_figure(ax: Axes) -> Figure:
    """The figure of the axes, also if they are in a subfigure."""
    found = ax.get_figure(root=True)
    if found is None:
        raise ShapeError("ax belongs to no figure; take one from plt.subplots().")
    return found


def cell_size(shape: Sequence[int], annotate: bool, labelled: bool) -> float:
    """The side of a cell in inches: enough for its number or a line of its label, limited by the page."""
    return 0.56 if annotate else max(0.13 if labelled else 0.0, min(0.42, 5.5 / max(shape)))


def cell_in(ax: Axes, shape: Sequence[int]) -> float:
    """The side of a cell in inches in given axes, to which labels are fitted."""
    box = ax.get_window_extent()
    return min(box.height / shape[0], box.width / shape[1]) / whole_figure(ax).dpi


def hatch(axes: Axes, hidden: Tensor) -> None:
    """Hatch masked cells, one patch per run of them in a row."""
    from matplotlib.patches import Rectangle

    style: dict[str, Any] = {"facecolor": HIDDEN, "edgecolor": HATCH, "hatch": "////", "linewidth": 0}
    for row, line in enumerate(hidden.tolist()):
        start = 0
        while start < len(line):
            stop = start
            while stop < len(line) and line[stop]:
                stop += 1
            if stop > start:
                axes.add_patch(Rectangle((start - 0.5, row - 0.5), stop - start, 1.0, zorder=0, **style))
            start = stop + 1


def ticks(length: int) -> range:
    """At most ten indices, a round number apart."""
    scale = 10 ** max(0, len(str(length - 1)) - 2)
    return range(0, length, next(step * scale for step in (1, 2, 5, 10) if length <= 10 * step * scale))


def label(
    axes: Axes, cell: float, shape: Sequence[int], labels: Labels, titles: tuple[str, str], title: str | None
) -> None:
    """Set the titles of both axes, and the labels of rows and columns if given."""
    for axis, length, side, name in zip((axes.yaxis, axes.xaxis), shape, labels, titles, strict=True):
        axis.set_label_text(name, color=SOFT)
        if side is None:
            axis.set_ticks(ticks(length))
            continue
        style: dict[str, Any] = {"fontsize": min(10, 60 * cell)}  # 72 points an inch, less room between lines
        if axis is axes.xaxis and max(map(len, side), default=0) > 8 * cell:
            # Slanted labels are closer together than their cells; upright ones are not.
            style |= {"rotation": 45 if cell > 0.3 else 90, "ha": "right", "rotation_mode": "anchor"}
            style |= {} if cell > 0.3 else {"va": "center"}
        # A token such as "$x$" is text, not a formula.
        axis.set_ticks(range(len(side)), side, parse_math=False, **style)
    if title:
        axes.set_title(title, fontsize=11, parse_math=False)


def grid(axes: Axes, shape: Sequence[int]) -> None:
    """Draw thin white lines between cells if cells are large enough, and no frame."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if max(shape) <= 32:
        axes.set_xticks([i + 0.5 for i in range(shape[1] - 1)], minor=True)
        axes.set_yticks([i + 0.5 for i in range(shape[0] - 1)], minor=True)
        axes.grid(which="minor", color="white", linewidth=1.0)
        axes.tick_params(which="minor", length=0)
