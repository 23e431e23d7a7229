"""A still picture of a map, for programs that can't run the widget."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any

from regard.models import Recording
from regard.viewer.heads import Head

__all__ = ["Picture", "draw", "still_output"]

# Blocks along the longer side: about as many as the picture has pixels.
BLOCKS = 256


class Picture:
    """The overview of one head as an image that every notebook, and every page made from one, can show.

    `instead` is the caption: why there is no widget, and the remedy.
    """

    def __init__(self, recording: Recording, role: str, layer: int, head: int, instead: str) -> None:
        self.recording, self.role, self.layer, self.head = recording, role, layer, head
        self.instead = instead

    def __repr__(self) -> str:
        return f"A still picture of layer {self.layer}, head {self.head}. {self.instead}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        image = draw(self.recording, self.role, self.layer, self.head, caption=self.instead)
        return {"image/png": image, "text/plain": repr(self)}


def still_output(image: str, name: str) -> dict[str, str]:
    """A picture as an output of a notebook; a page that runs the widget identifies it by its name."""
    alt = "The map when the cell ran"
    html = f'<img data-regard-still="{name}" alt="{alt}" src="data:image/png;base64,{image}">'
    return {"text/html": html, "image/png": image, "text/plain": alt}


def draw(recording: Recording, role: str, layer: int, head: int, *, caption: str = "") -> str:
    """Draw one head's map as a base64 PNG with the largest weight of each block; computes the whole map."""
    from regard.plots import overview

    whole = Head.of(recording.stack(role)[layer].map, head)
    size = max(1, -(-max(whole.queries, whole.keys) // BLOCKS))
    pooled = whole.map.pooled(size, "max")[0, 0]
    figure = overview(pooled, (whole.queries, whole.keys), title=f"layer {layer}, head {head}")
    if caption:
        figure.supxlabel(caption, fontsize=7, color="#666666", wrap=True, parse_math=False)
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    return b64encode(drawn.getvalue()).decode()
