"""`over_image`: weights of patches as an overlay on their image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.errors import ShapeError
from regard.plots.drawing import blank, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["over_image"]

# A colour that is visible on dark and on light pictures.
GLOW = (1.0, 0.5, 0.0)


def over_image(
    weights: Tensor,
    image: Any,
    *,
    title: str | None = None,
    frame: tuple[int, int] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """A (rows, columns) grid of weights over an image: the more weight, the more orange.

    The image is a PIL image or an array of height × width × 3. `frame` draws a frame around one patch. With
    `ax`, it is drawn in your axes, and your figure is returned.

    >>> import torch
    >>> figure = over_image(torch.eye(4), torch.rand(32, 32, 3).numpy())
    >>> len(figure.axes[0].images)
    2
    """
    if weights.ndim != 2:
        raise ShapeError(f"weights have shape {tuple(weights.shape)}; wanted (rows, columns) of patches.")
    import numpy as np
    from matplotlib.patches import Rectangle

    picture = np.asarray(image)
    if picture.ndim == 3 and picture.shape[0] in (1, 3) and picture.shape[2] not in (3, 4):
        raise ShapeError(f"the image has shape {picture.shape}; move the colours last: height × width × 3.")
    rows, columns = weights.shape
    if ax is None:
        figure = blank(4.6, 4.6 * picture.shape[0] / picture.shape[1] + 0.4)
        axes = figure.subplots()
    else:
        figure, axes = whole_figure(ax), ax
    extent = (0, columns, rows, 0)
    # Draw the image in grey, so that only weights are coloured.
    grey = picture[..., :3].mean(-1) if picture.ndim == 3 else picture
    white = 255 if picture.dtype == np.uint8 else 1
    axes.imshow(grey, cmap="gray", vmin=0, vmax=white, extent=extent, aspect="auto", interpolation="bilinear")
    shown = weights.detach().float().cpu().numpy()
    opacity = 0.85 * shown / (shown.max() or 1.0)
    glow = np.empty((rows, columns, 4))
    glow[..., :3], glow[..., 3] = GLOW, opacity
    axes.imshow(glow, extent=extent, aspect="auto", interpolation="nearest")
    if frame is not None:
        row, column = frame
        axes.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor="white", linewidth=2.0))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect(picture.shape[0] / picture.shape[1] * columns / rows)
    axes.set_title(title or "", fontsize=10, parse_math=False)
    return figure
