"""Pictures inside a page: figures as SVG or PNG text, thumbnails of maps."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from regard.plots import colour_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["png_of", "svg_of", "thumbnail"]


def svg_of(figure: Figure) -> str:
    """A figure as an SVG element that can stand in a page: scales with it, fetches nothing."""
    from matplotlib import rc_context

    out = io.StringIO()
    # Text as text: small, searchable, read aloud. A fixed salt: the same figure is the same bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "regard"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    found = out.getvalue()
    found = re.sub(r"\s*<metadata>.*?</metadata>", "", found[found.index("<svg") :], flags=re.DOTALL)
    # Without a size of its own the picture is as wide as the page allows.
    start, rest = found.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", start) + ">" + rest


def png_of(figure: Figure) -> str:
    """A figure as a data URL of a PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return _url(out.getvalue())


def thumbnail(pooled: Float[Tensor, "rows columns"]) -> str:
    """A pooled map as a data URL: one pixel a block, coloured as all maps are."""
    from matplotlib.image import imsave

    out = io.BytesIO()
    imsave(out, colour_cells(pooled), format="png", metadata={"Software": ""})
    return _url(out.getvalue())


def _url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
