"""`heatmap`: an attention map as in textbooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import ShapeError
from regard.plots.colours import colormap, ink, shade
from regard.plots.drawing import canvas, cell_in, cell_size, grid, hatch, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["heatmap"]


def heatmap(
    weights: Tensor,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    *,
    annotate: bool = True,
    hidden: Tensor | None = None,
    title: str | None = None,
    row_title: str = "query",
    column_title: str = "key",
    limit: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw a matrix with a row per query and a column per key; each cell is shaded and labelled.

    Positive and negative numbers have different colours. `limit` is the absolute value with the full colour,
    by default the largest of the matrix. Cells that are `hidden` or −inf are hatched and have no number. The
    figure doesn't use pyplot: save it with `figure.savefig(path)`. With `ax`, it is drawn in your axes, and
    your figure is returned.

    >>> import torch
    >>> figure = heatmap(torch.eye(3), ["The", "cat", "sat"], ["The", "cat", "sat"])
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['The', 'cat', 'sat']
    """
    cells, hidden = _checked(weights, hidden)
    labels = [_checked_labels(name, given, n) for name, given, n in _sides(cells, row_labels, column_labels)]
    cell = cell_size(cells.shape, annotate, labelled=labels != [None, None])
    figure, axes = canvas(cells.shape, labels, cell, ax)
    cell = cell if ax is None else cell_in(ax, cells.shape)
    size = _limit(cells, hidden, limit)
    signed = bool((cells[~hidden] < 0).any())
    drawn = cells.masked_fill(hidden, math.nan).numpy()
    low = -size if signed else 0.0
    image = axes.imshow(drawn, cmap=colormap(signed), vmin=low, vmax=size, aspect="equal")
    hatch(axes, hidden)
    if annotate:
        _annotate(axes, cells, hidden, size)
    label(axes, cell, cells.shape, labels, (row_title, column_title), title)
    grid(axes, cells.shape)
    # With few rows a colour bar has no space for its numbers, which are in the cells anyway.
    if cells.shape[0] >= 3:
        inch = 1 / (cell * cells.shape[1])
        bar = axes.inset_axes((1 + 0.08 * inch, 0.0, 0.16 * inch, 1.0))
        figure.colorbar(image, cax=bar).outline.set_visible(False)
        bar.tick_params(length=0, labelsize=8, labelcolor="#555b66")
    return figure


def _sides(cells: Tensor, rows: Sequence[str] | None, columns: Sequence[str] | None):
    return ("row_labels", rows, cells.shape[0]), ("column_labels", columns, cells.shape[1])


def _checked(weights: Tensor, hidden: Tensor | None) -> tuple[Float[Tensor, "q k"], Bool[Tensor, "q k"]]:
    cells = torch.as_tensor(weights).detach().to("cpu", torch.float64)
    if cells.ndim != 2 or not cells.numel():
        raise ShapeError(
            f"heatmap got an array of shape {tuple(cells.shape)}; it draws one matrix (q, k) with at least "
            "one cell. Pick a batch row and a head first: weights[0, 0]."
        )
    nothing = cells == -math.inf
    if hidden is None:
        return cells, nothing
    if hidden.shape != cells.shape:
        raise ShapeError(
            f"hidden has shape {tuple(hidden.shape)} and the matrix {tuple(cells.shape)}; they must be equal."
        )
    return cells, hidden.detach().cpu().bool() | nothing


def _checked_labels(name: str, labels: Sequence[str] | None, wanted: int) -> list[str] | None:
    if labels is None:
        return None
    if isinstance(labels, str) or len(labels) != wanted:
        got = "one string" if isinstance(labels, str) else f"{len(labels)} labels"
        raise ShapeError(f"{name} holds {got}; the matrix needs a list of {wanted}.")
    return [str(label) for label in labels]


def _limit(cells: Tensor, hidden: Tensor, limit: float | None) -> float:
    """The absolute value with the full colour; never zero, so that an empty map can be drawn."""
    if limit is not None:
        return limit
    seen = cells[~hidden & cells.isfinite()]
    return float(seen.abs().max()) or 1.0 if seen.numel() else 1.0


def _annotate(axes: Axes, cells: Tensor, hidden: Tensor, size: float) -> None:
    digits = 0 if bool((cells[~hidden] == cells[~hidden].round()).all()) and size < 1e4 else 2
    for row, line in enumerate(cells.tolist()):
        for column, value in enumerate(line):
            if hidden[row, column] or not math.isfinite(value):
                continue
            # Avoid a minus before zeros: -0.001 would be shown as -0.00.
            text = f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.0e}"
            text = text.removeprefix("-") if not text.strip("-0.") else text.replace("-", "−")
            color = ink(shade(value / size))
            # Exclude the numbers from layout, because laying out thousands of them would take minutes.
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color=color, in_layout=False)
