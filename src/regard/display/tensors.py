"""How a notebook shows masks, maps and observations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.display.page import figure, page, pixels, table
from regard.errors import RegardError
from regard.extension import implements
from regard.maps import AttentionMap, Observation
from regard.masks import Mask

__all__ = ["thumbnails"]

# Sides of the part of a mask that is drawn; heads of a map that are; cells that may be computed for them.
DRAWN, HEADS, CELLS = 16, 8, 1 << 24
# Pixels along the side of a picture.
SIDE = 64


@implements(Mask._repr_html_)
def _show_mask(self: Mask) -> str:
    try:
        allowed = self.dense(DRAWN, DRAWN)
    except RegardError:
        # It was made for lengths of its own.
        return page(repr(self), "")
    first = allowed.reshape(-1, DRAWN, DRAWN)[0]
    return page(repr(self), "", figure(pixels(first.double()), f"the first {DRAWN} queries and keys"))


@implements(AttentionMap._repr_html_)
def _show_map(self: AttentionMap) -> str:
    return page("AttentionMap", _facts(self), thumbnails(self))


@implements(Observation._repr_html_)
def _show_observation(self: Observation) -> str:
    rows = [_line(name, value) for name, value in {"out": self.out, "lse": self.lse, **self.stats}.items()]
    return page(
        "Observation",
        _facts(self.map),
        table(["name", "shape", "mean", "least", "most"], rows),
        thumbnails(self.map),
    )


def thumbnails(seen: AttentionMap) -> str:
    """The first heads as small pictures; a line about `show` where they would take long."""
    _, heads, q, k = seen.shape
    shown = min(heads, HEADS)
    if not q or not k or shown * q * k > CELLS:
        return "<p>Look at it with <code>.show()</code>, or read a part: <code>map[0, 0, :64, :64]</code></p>"
    size = max(1, -(-max(q, k) // SIDE))
    pictures = []
    for head in range(shown):
        tile = seen[0, head].double()[None]
        pooled = torch.nn.functional.max_pool2d(tile, size, ceil_mode=True)[0] if size > 1 else tile[0]
        pictures.append(figure(pixels(pooled), f"head {head}"))
    more = f"<p>… and {heads - shown} more heads.</p>" if heads > shown else ""
    return f"<div>{''.join(pictures)}</div>{more}"


def _facts(seen: AttentionMap) -> str:
    batch, heads, q, k = seen.shape
    return f"batch {batch}, {heads} heads, {q:,} queries × {k:,} keys, mask {seen.mask!r}"


def _line(name: str, value: Any) -> list[Any]:
    if not isinstance(value, Tensor):
        return [name, type(value).__name__, "", "", ""]
    shape = " × ".join(map(str, value.shape))
    finite = value.detach()[value.detach().isfinite()].double() if value.numel() else value
    if not finite.numel():
        return [name, shape, "", "", ""]
    return [name, shape, float(finite.mean()), float(finite.min()), float(finite.max())]
