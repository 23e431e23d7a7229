"""`overview`: the pooled map of a long text, with an enlarged part cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError
from regard.plots.colours import colormap
from regard.plots.drawing import HIDDEN, SOFT, blank, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Inset", "colour_cells", "overview"]

# The colour scale spans three decades below the largest weight.
DECADES = 3


class Inset(NamedTuple):
    """A part of the map, cell by cell: its weights, and the indices of its first row and column."""

    weights: Float[Tensor, "q k"]
    query: int
    key: int
    row_labels: Sequence[str] | None = None
    column_labels: Sequence[str] | None = None


def overview(
    pooled: Float[Tensor, "rows columns"],
    lengths: tuple[int, int],
    *,
    inset: Inset | None = None,
    title: str | None = None,
    how: str = "max",
    ax: Axes | None = None,
) -> Figure:
    """Draw a pooled map of the whole text on a logarithmic colour scale, with an enlarged part next to it.

    `lengths` are the numbers of queries and keys of the whole map; `how` is the pooling, for the legend. With
    `ax` it is drawn in your axes, without an inset.

    >>> import torch
    >>> figure = overview(torch.rand(8, 8), (1000, 1000), inset=Inset(torch.eye(4), 500, 500), title="L3 H2")
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['L3 H2', 'queries 500–503, keys 500–503']
    """
    if pooled.ndim != 2 or not pooled.numel():
        raise ShapeError(
            f"overview got an array of shape {tuple(pooled.shape)}; it draws one pooled map (rows, columns)."
        )
    if ax is not None and inset is not None:
        raise ShapeError(
            "overview got ax and inset, and an inset needs axes of its own; leave out one of them."
        )
    if ax is not None:
        figure, axes = whole_figure(ax), [ax]
    else:
        figure = blank(9.6 if inset else 5.6, 4.8)
        axes = figure.subplots(1, 2 if inset else 1, squeeze=False)[0]
    cells = pooled.detach().cpu().double()
    top = float(cells.max()) or 1.0
    image = _image(axes[0], cells, top, (-0.5, lengths[1] - 0.5, lengths[0] - 0.5, -0.5))
    axes[0].set_title(title or "", fontsize=11, parse_math=False)
    if inset is not None:
        _draw_inset(axes[0], axes[1], inset, top)
    bar = figure.colorbar(image, ax=list(axes), shrink=0.82, pad=0.015, extend="min")
    bar.set_label(f"weight ({how} of each block, logarithmic)", color=SOFT, fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT)
    return figure


def colour_cells(pooled: Float[Tensor, "rows columns"]) -> Any:
    """The colours of a pooled map as an array (rows, columns, 4) of bytes, with the scale of `overview`.

    >>> colour_cells(torch.eye(2)).shape
    (2, 2, 4)
    """
    cells = pooled.detach().cpu().double()
    colours, norm = _shading(float(cells.max()) or 1.0)
    return colours(norm(cells.masked_fill(cells <= 0, torch.nan).numpy()), bytes=True)


def _shading(top: float) -> tuple[Any, Any]:
    """Colours on a logarithmic scale that ends at `top`."""
    from matplotlib.colors import LogNorm

    colours = colormap().with_extremes(bad=HIDDEN, under="#ffffff")
    return colours, LogNorm(top * 10.0**-DECADES, top)


def _image(axes: Axes, cells: Tensor, top: float, extent: tuple[float, float, float, float]):
    colours, norm = _shading(top)
    drawn = cells.masked_fill(cells <= 0, torch.nan).numpy()
    image = axes.imshow(drawn, cmap=colours, norm=norm, extent=extent, interpolation="nearest")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=SOFT)
    axes.set_xlabel("key", color=SOFT)
    axes.set_ylabel("query", color=SOFT)
    return image


def _draw_inset(whole: Axes, axes: Axes, inset: Inset, top: float) -> None:
    """Draw the enlarged part, and mark its place in the whole map."""
    from matplotlib.patches import Rectangle

    cells = inset.weights.detach().cpu().double()
    q, k = cells.shape
    _image(axes, cells, top, (inset.key - 0.5, inset.key + k - 0.5, inset.query + q - 0.5, inset.query - 0.5))
    last = inset.query + q - 1, inset.key + k - 1
    axes.set_title(f"queries {inset.query}–{last[0]}, keys {inset.key}–{last[1]}", fontsize=9)
    for axis, start, labels in (
        (axes.yaxis, inset.query, inset.row_labels),
        (axes.xaxis, inset.key, inset.column_labels),
    ):
        if labels is not None:
            style: dict[str, Any] = {"rotation": 90} if axis is axes.xaxis else {}
            places = range(start, start + len(labels))
            axis.set_ticks(places, labels, fontsize=min(8, 200 / len(labels)), parse_math=False, **style)
    corner = inset.key - 0.5, inset.query - 0.5
    whole.add_patch(Rectangle(corner, k, q, fill=False, edgecolor="#d3712b", linewidth=1.2))
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("#d3712b")
