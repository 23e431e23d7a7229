"""Figures with matplotlib, which is imported when one is drawn."""

from regard.plots.colours import ink, shade
from regard.plots.curves import curves, panels
from regard.plots.heatmap import heatmap
from regard.plots.labels import visible
from regard.plots.mask import mask_figure
from regard.plots.over_image import over_image
from regard.plots.overview import Inset, colour_cells, overview

__all__ = [
    "Inset",
    "colour_cells",
    "curves",
    "heatmap",
    "ink",
    "mask_figure",
    "over_image",
    "overview",
    "panels",
    "shade",
    "visible",
]
