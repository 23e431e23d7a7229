"""Figures: an attention map, a mask, and the colours that every picture of regard shares.

The colours are steps of equal lightness (in Oklab) along two hues that colour-blind readers tell apart:
blue for positive numbers and for weights, orange for negative ones. matplotlib loads when a figure is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import MaskError, ShapeError
from regard.masks import Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = ["heatmap", "ink", "mask_figure", "shade"]

Labels = Sequence[list[str] | None]  # of the rows and of the columns

BLUE, ORANGE = math.radians(255), math.radians(52)
HIDDEN = "#eceef1"
HATCH = "#c9ced6"


def shade(level: float, dark: bool = False) -> str:
    """The colour of a number from -1 to 1: blue above zero, orange below, the page's own colour at zero.

    Beyond that range the colour stays at its end. On a dark page larger is lighter, on a white one darker.

    >>> shade(0.0), shade(0.5), shade(-0.5), shade(0.5, dark=True)
    ('#ffffff', '#4b90e6', '#d3712b', '#2d73c6')
    """
    strength = min(abs(level), 1.0)
    lightness = 0.19 + 0.73 * strength if dark else 1.0 - 0.7 * strength
    chroma = 0.42 * strength * (1.2 - strength)
    hue = BLUE if level > 0 else ORANGE
    return _srgb(lightness, chroma * math.cos(hue), chroma * math.sin(hue))


def ink(background: str) -> str:
    """Black or white, whichever reads better on a colour; the contrast is never below 4.5 to 1.

    >>> ink("#ffffff"), ink("#08306b")
    ('#000000', '#ffffff')
    """
    channels = (int(background[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # Contrast with white is 1.05 / (l + 0.05) and with black (l + 0.05) / 0.05: equal where their product is.
    return "#ffffff" if (luminance + 0.05) ** 2 < 1.05 * 0.05 else "#000000"


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
) -> Figure:
    """One matrix as textbooks draw it: a row per query, a column per key, each cell shaded and written out.

    Numbers of both signs are shaded on both sides of zero. `limit` is the size that gets the full colour
    (the largest of the matrix, unless given). Cells that are `hidden`, or −inf, are hatched and hold no
    number. The figure knows nothing of pyplot: save it with `figure.savefig(path)`.

    >>> import torch
    >>> figure = heatmap(torch.eye(3), ["The", "cat", "sat"], ["The", "cat", "sat"])
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['The', 'cat', 'sat']
    """
    cells, hidden = _checked(weights, hidden)
    labels = [_checked_labels(name, given, n) for name, given, n in _sides(cells, row_labels, column_labels)]
    cell = _cell(cells.shape, annotate, labelled=labels != [None, None])
    figure, axes = _canvas(cells.shape, labels, cell)
    size = _limit(cells, hidden, limit)
    signed = bool((cells[~hidden] < 0).any())
    drawn = cells.masked_fill(hidden, math.nan).numpy()
    low = -size if signed else 0.0
    image = axes.imshow(drawn, cmap=_colormap(signed), vmin=low, vmax=size, aspect="equal")
    _hatch(axes, hidden)
    if annotate:
        _annotate(axes, cells, hidden, size)
    _label(axes, cell, cells.shape, labels, (row_title, column_title), title)
    _grid(axes, cells.shape)
    if (
        cells.shape[0] >= 3
    ):  # fewer rows leave a colour bar no room for its numbers, and they are in the cells
        inch = 1 / (cell * cells.shape[1])
        bar = axes.inset_axes((1 + 0.08 * inch, 0.0, 0.16 * inch, 1.0))
        figure.colorbar(image, cax=bar).outline.set_visible(False)
        bar.tick_params(length=0, labelsize=8, labelcolor="#555b66")
    return figure


def mask_figure(mask: Mask, q: int, k: int | None = None, *, batch: int = 0, head: int = 0) -> Figure:
    """A mask as a picture: blue where a query may attend, hatched where it may not.

    >>> from regard.masks import Causal, Window
    >>> figure = mask_figure(Causal() & Window(4), 16)
    >>> figure.axes[0].get_title()
    'Causal() & Window(left=4)'
    """
    k = q if k is None else k
    if q < 1 or k < 1:
        raise MaskError(f"mask_figure got {q} queries and {k} keys; there must be at least one of each.")
    allowed = mask.dense(q, k)
    if allowed.ndim == 4:
        for name, size, index in (("batch row", allowed.shape[0], batch), ("head", allowed.shape[1], head)):
            if size > 1 and not 0 <= index < size:
                raise MaskError(
                    f"mask_figure got {name} {index} of a mask with {size}; count from 0 to {size - 1}."
                )
        allowed = allowed[batch if allowed.shape[0] > 1 else 0, head if allowed.shape[1] > 1 else 0]
    cell = _cell(allowed.shape, annotate=False, labelled=False)
    figure, axes = _canvas(allowed.shape, [None, None], cell)
    drawn = allowed.double().masked_fill(~allowed, math.nan).numpy()
    axes.imshow(drawn, cmap=_colormap(signed=False), vmin=0.0, vmax=1.5, aspect="equal")
    _hatch(axes, ~allowed)
    name = repr(mask)
    _label(
        axes,
        cell,
        allowed.shape,
        [None, None],
        ("query", "key"),
        name if len(name) <= 60 else f"{name[:59]}…",
    )
    _grid(axes, allowed.shape)
    return figure


def _srgb(lightness: float, a: float, b: float) -> str:
    """An Oklab colour as #rrggbb, clipped to what a screen can show."""
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    clipped = (min(max(c, 0.0), 1.0) for c in linear)
    channels = (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in clipped)
    return "#" + "".join(f"{round(255 * c):02x}" for c in channels)


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
    """The size of a number that gets the full colour; never zero, so that an empty map can be drawn."""
    if limit is not None:
        return limit
    seen = cells[~hidden & cells.isfinite()]
    return float(seen.abs().max()) or 1.0 if seen.numel() else 1.0


def _cell(shape: Sequence[int], annotate: bool, labelled: bool) -> float:
    """The side of a cell in inches: room for its number, or for a line of its label, or as fits on a page."""
    return 0.56 if annotate else max(0.13 if labelled else 0.0, min(0.42, 5.5 / max(shape)))


def _canvas(shape: Sequence[int], labels: Labels, cell: float) -> tuple[Figure, Axes]:
    """An empty figure of the right size, drawn without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    q, k = shape
    margins = [0.095 * max((len(label) for label in side or ["00"]), default=1) for side in labels]
    width, height = cell * k + margins[0] + 1.5, cell * q + min(margins[1], 1.2) + 1.1
    width, height = max(width, 2.6), max(height, 1.9)
    figure = Figure(figsize=(width, height), dpi=150)
    figure.set_layout_engine(
        "constrained", rect=(0.05 / width, 0.05 / height, 1 - 0.2 / width, 1 - 0.1 / height)
    )
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _colormap(signed: bool) -> Colormap:
    from matplotlib.colors import ListedColormap

    levels = range(-255 if signed else 0, 256)
    return ListedColormap([shade(level / 255) for level in levels], name="regard")


def _hatch(axes: Axes, hidden: Tensor) -> None:
    """Strike out hidden cells, one patch per run of them in a row."""
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


def _annotate(axes: Axes, cells: Tensor, hidden: Tensor, size: float) -> None:
    digits = 0 if bool((cells[~hidden] == cells[~hidden].round()).all()) and size < 1e4 else 2
    for row, line in enumerate(cells.tolist()):
        for column, value in enumerate(line):
            if hidden[row, column] or not math.isfinite(value):
                continue
            # Rounding leaves a minus before zeros: -0.001 would read -0.00.
            text = f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.0e}"
            text = text.removeprefix("-") if not text.strip("-0.") else text.replace("-", "−")
            color = ink(shade(value / size))
            # Thousands of numbers, all inside the frame: laying each one out would take minutes.
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color=color, in_layout=False)


def _ticks(length: int) -> range:
    """At most ten indices, a round number apart."""
    scale = 10 ** max(0, len(str(length - 1)) - 2)
    return range(0, length, next(step * scale for step in (1, 2, 5, 10) if length <= 10 * step * scale))


def _label(
    axes: Axes, cell: float, shape: Sequence[int], labels: Labels, titles: tuple[str, str], title: str | None
) -> None:
    for axis, length, side, name in zip((axes.yaxis, axes.xaxis), shape, labels, titles, strict=True):
        axis.set_label_text(name, color="#555b66")
        if side is None:
            axis.set_ticks(_ticks(length))
            continue
        style: dict[str, Any] = {"fontsize": min(10, 60 * cell)}  # 72 points an inch, less room between lines
        if axis is axes.xaxis and max(map(len, side), default=0) > 8 * cell:
            # Slanted lines stand closer together than the cells they belong to; upright ones do not.
            style |= {"rotation": 45 if cell > 0.3 else 90, "ha": "right", "rotation_mode": "anchor"}
            style |= {} if cell > 0.3 else {"va": "center"}
        # A token such as "$x$" is text, not a formula.
        axis.set_ticks(range(len(side)), side, parse_math=False, **style)
    if title:
        axes.set_title(title, fontsize=11, parse_math=False)


def _grid(axes: Axes, shape: Sequence[int]) -> None:
    """Thin white lines between cells while cells are large enough for them, and no frame."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if max(shape) <= 32:
        axes.set_xticks([i + 0.5 for i in range(shape[1] - 1)], minor=True)
        axes.set_yticks([i + 0.5 for i in range(shape[0] - 1)], minor=True)
        axes.grid(which="minor", color="white", linewidth=1.0)
        axes.tick_params(which="minor", length=0)
