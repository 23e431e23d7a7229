"""HTML for notebook cells, without scripts and files, for light and dark themes."""

from __future__ import annotations

import base64
import io
from typing import Any

from torch import Tensor

from regard.templating import render

__all__ = ["cell", "pixels"]


def cell(template: str, title: str, facts: str, **given: Any) -> str:
    """Render a template of this package with a heading and a line of facts."""
    return str(render("regard.display", template, title=title, facts=facts, **given))


def pixels(cells: Tensor) -> str:
    """A matrix as a data URL, with one pixel per cell, in the common map colours."""
    from matplotlib.image import imsave

    from regard.plots import colour_cells

    out = io.BytesIO()
    imsave(out, colour_cells(cells), format="png", metadata={"Software": ""})
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")
