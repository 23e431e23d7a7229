"""Notebook displays of masks, maps and observations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.display.page import cell, pixels
from regard.errors import RegardError
from regard.extension import implements
from regard.maps import AttentionMap, Observation
from regard.masks import Mask

__all__: list[str] = []

# The side of the drawn part of a mask, the number of drawn heads of a map, and the most cells to compute for
# them.
DRAWN, HEADS, CELLS = 16, 8, 1 << 24
# Pixels along the side of a picture.
SIDE = 64
COLUMNS = ["name", "shape", "mean", "min", "max"]


@implements(Mask._repr_html_)
def _show_mask(self: Mask) -> str:
    try:
        allowed = self.dense(DRAWN, DRAWN)
    except RegardError:
        # It was made for lengths of its own.
        return cell("mask.html", repr(self), "", png=None)
    first = allowed.reshape(-1, DRAWN, DRAWN)[0]
    return cell("mask.html", repr(self), "", png=pixels(first.double()), drawn=DRAWN)


@implements(AttentionMap._repr_html_)
def _show_map(self: AttentionMap) -> str:
    return cell("map.html", "AttentionMap", _facts(self), columns=None, **_thumbnails(self))


@implements(Observation._repr_html_)
def _show_observation(self: Observation) -> str:
    rows = [_line(name, value) for name, value in {"out": self.out, "lse": self.lse, **self.stats}.items()]
    facts = _facts(self.map)
    return cell("map.html", "Observation", facts, columns=COLUMNS, rows=rows, **_thumbnails(self.map))


def _thumbnails(seen: AttentionMap) -> dict[str, Any]:
    """The first heads as thumbnails, and the number of further heads; none if computing them would take
    long."""
    _, heads, q, k = seen.shape
    shown = min(heads, HEADS)
    if not q or not k or shown * q * k > CELLS:
        return {"heads": [], "more": 0}
    size = max(1, -(-max(q, k) // SIDE))
    pictures = []
    for head in range(shown):
        tile = seen[0, head].double()[None]
        pooled = torch.nn.functional.max_pool2d(tile, size, ceil_mode=True)[0] if size > 1 else tile[0]
        pictures.append(pixels(pooled))
    return {"heads": pictures, "more": heads - shown}


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
