"""A mask as a picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from regard.errors import MaskError
from regard.masks import Mask
from regard.plots.colours import colormap
from regard.plots.drawing import canvas, cell_size, grid, hatch, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["mask_figure"]


def mask_figure(
    mask: Mask, q: int, k: int | None = None, *, batch: int = 0, head: int = 0, ax: Axes | None = None
) -> Figure:
    """A mask as a picture: blue where a query may attend, hatched where it may not; in `ax`, if given.

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
    cell = cell_size(allowed.shape, annotate=False, labelled=False)
    figure, axes = canvas(allowed.shape, [None, None], cell, ax)
    drawn = allowed.double().masked_fill(~allowed, math.nan).numpy()
    axes.imshow(drawn, cmap=colormap(signed=False), vmin=0.0, vmax=1.5, aspect="equal")
    hatch(axes, ~allowed)
    name = repr(mask)
    label(
        axes,
        cell,
        allowed.shape,
        [None, None],
        ("query", "key"),
        name if len(name) <= 60 else f"{name[:59]}…",
    )
    grid(axes, allowed.shape)
    return figure
