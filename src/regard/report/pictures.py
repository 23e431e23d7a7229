"""Pictures for the page: figures as inline SVG or PNG, thumbnails of maps."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from regard.errors import RegardError
from regard.maps import AttentionMap
from regard.models import Recording
from regard.plots import Inset, colour_cells, overview, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BLOCKS", "block_of", "labels_of", "png_of", "svg_of", "thumbnail", "zoomed"]

# Blocks along the longer side of a picture of a whole map: about as many as it has pixels.
BLOCKS = 256


def block_of(seen: AttentionMap) -> int:
    """The number of cells along the side of a block of such a picture."""
    return max(1, -(-max(seen.shape[2:]) // BLOCKS))


def labels_of(recording: Recording) -> list[str] | None:
    """The tokens as visible text; None if the recording has no tokenizer."""
    try:
        return [visible(token.text) for token in recording.tokens]
    except RegardError:
        return None


def zoomed(
    seen: AttentionMap,
    head: int,
    pooled: Float[Tensor, "rows columns"],
    at: tuple[int, int],
    cells: int,
    *,
    labels: list[str] | None,
    title: str,
    how: str = "max",
) -> Figure:
    """A head's whole map, pooled, and beside it the `cells` × `cells` around a query and a key."""
    _, _, q, k = seen.shape
    top, left = (max(0, min(middle - cells // 2, n - cells)) for middle, n in zip(at, (q, k), strict=True))
    tile = seen[0, head, top : top + cells, left : left + cells]
    sides: tuple[list[str] | None, ...] = (None, None)
    # The last generated token was never read, so it has no row.
    if labels is not None and q == k <= len(labels):
        sides = labels[top : top + tile.shape[0]], labels[left : left + tile.shape[1]]
    return overview(pooled, (q, k), inset=Inset(tile, top, left, *sides), title=title, how=how)


def svg_of(figure: Figure) -> str:
    """A figure as an inline SVG element that scales with the page."""
    from matplotlib import rc_context

    out = io.StringIO()
    # Keep text as text: small, searchable, accessible. With a fixed salt, the same figure gives the same
    # bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "regard"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    found = out.getvalue()
    found = re.sub(r"\s*<metadata>.*?</metadata>", "", found[found.index("<svg") :], flags=re.DOTALL)
    # Remove the fixed size, so that the picture gets the width of the page.
    start, rest = found.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", start) + ">" + rest


def png_of(figure: Figure) -> str:
    """A figure as a data URL of a PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return _url(out.getvalue())


def thumbnail(pooled: Float[Tensor, "rows columns"]) -> str:
    """A pooled map as a data URL, with one pixel per block, in the common map colours."""
    from matplotlib.image import imsave

    out = io.BytesIO()
    imsave(out, colour_cells(pooled), format="png", metadata={"Software": ""})
    return _url(out.getvalue())


def _url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
