"""Readings of a map: a cell, a row, a column, a region."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import MapError
from regard.viewer.heads import Head
from regard.viewer.plain import number
from regard.viewer.pyramid import COARSE, Pyramid

__all__ = ["REGION", "cell", "column", "line", "region", "row"]

# Regions of at most this many cells are read cell by cell; larger ones use the pyramid.
REGION = 1 << 26


def cell(head: Head, query: int, key: int) -> dict[str, Any]:
    """The numbers of one pair; `rank` 1 is the heaviest key of the row.

    >>> import torch, regard
    >>> q = torch.zeros(1, 1, 4, 8)
    >>> head = Head.of(regard.AttentionMap.of(q, q, mask=regard.Causal()), 0)
    >>> cell(head, 1, 0)["weight"], cell(head, 1, 3)["visible"], cell(head, 3, 1)["distance"]
    (0.5, False, 2)
    """
    _within("query", query, head.queries)
    _within("key", key, head.keys)
    scores = head.scores(range(query, query + 1), range(head.keys))[0]
    score = float(scores[key])
    visible = score > -math.inf
    lse = float(head.lse[query])
    return {
        "query": query,
        "key": key,
        "weight": math.exp(score - lse) if visible else 0.0,
        "score": number(score),
        "log_weight": number(score - lse) if visible else None,
        "rank": 1 + int((scores > score).sum()) if visible else None,
        "visible": visible,
        "distance": query + head.offset - key,
    }


def row(head: Head, query: int, k: int) -> dict[str, Any]:
    """The heaviest keys of a query, and its entropy."""
    _within("query", query, head.queries)
    weights = line(head, query=query)
    top = weights.topk(min(k, len(weights)))
    shown = [
        {"key": int(key), "weight": float(weight)}
        for weight, key in zip(top.values, top.indices, strict=True)
        if weight > 0
    ]
    return {
        "query": query,
        "top": shown,
        "entropy": float(torch.special.entr(weights.double()).sum()),
        "lse": number(float(head.lse[query])),
        "mass_shown": sum(one["weight"] for one in shown),
    }


def column(head: Head, key: int, k: int) -> dict[str, Any]:
    """The queries that attend to a key most, and its total mass."""
    weights = line(head, key=key)
    top = weights.topk(min(k, len(weights)))
    pairs = zip(top.values, top.indices, strict=True)
    return {
        "key": key,
        "top": [{"query": int(query), "weight": float(weight)} for weight, query in pairs if weight > 0],
        "mass": float(weights.double().sum()),
    }


def line(head: Head, query: int | None = None, key: int | None = None) -> Float[Tensor, " n"]:
    """One row of a map, over its keys, or one column, over its queries."""
    if query is not None:
        _within("query", query, head.queries)
        return head.map[0, 0, query].float()
    if key is None:
        raise MapError("neither a query nor a key was named; give one of them.")
    _within("key", key, head.keys)
    return head.map[0, 0, :, key].float()


def region(head: Head, rows: range, cols: range, pyramid: Pyramid | None) -> dict[str, Any]:
    """Sums over a rectangle of the map: exact cells at its rim, and the `pyramid` inside."""
    for name, span, length in (("q", rows, head.queries), ("k", cols, head.keys)):
        if not 0 <= span.start < span.stop <= length:
            raise MapError(
                f"{name}0 is {span.start} and {name}1 is {span.stop}; wanted {name}0 below {name}1, both "
                f"between 0 and {length}."
            )
    mass, most, at = 0.0, -1.0, (rows.start, cols.start)
    for part in _parts(rows, cols, pyramid):
        found = _exact(head, *part) if len(part) == 2 else _stored(head, *part)
        mass += found[0]
        if found[1] > most:
            most, at = found[1:]
    cells = len(rows) * len(cols)
    return {
        "cells": cells,
        "visible": head.visible(rows, cols),
        "mass": mass,
        "share": mass / len(rows),
        "mean": mass / cells,
        "max": max(most, 0.0),
        "max_at": list(at) if most > 0 else None,
    }


Found = tuple[float, float, tuple[int, int]]


def _exact(head: Head, rows: range, cols: range) -> Found:
    mass, most, at = 0.0, -1.0, (rows.start, cols.start)
    for r, c, weights in head.pieces(rows, cols):
        mass += float(weights.sum(dtype=torch.float64))
        peak = int(weights.argmax())
        if float(weights.flatten()[peak]) > most:
            most = float(weights.flatten()[peak])
            at = r.start + peak // len(c), c.start + peak % len(c)
    return mass, most, at


def _stored(head: Head, rows: range, cols: range, pyramid: Pyramid) -> Found:
    """Sums of whole blocks of the finest stored level; the cell of the largest weight is searched within its
    block."""
    size = 1 << COARSE
    part = slice(rows.start // size, rows.stop // size), slice(cols.start // size, cols.stop // size)
    mass = float(pyramid.level(COARSE, "mean")[part].sum(dtype=torch.float64)) * size * size
    peaks = pyramid.level(COARSE, "max")[part]
    block = int(peaks.argmax())
    r = rows.start + size * (block // peaks.shape[1])
    c = cols.start + size * (block % peaks.shape[1])
    _, most, at = _exact(head, range(r, r + size), range(c, c + size))
    return mass, most, at


def _parts(rows: range, cols: range, pyramid: Pyramid | None) -> list[tuple[Any, ...]]:
    """The rectangle as blocks in its middle and four strips of cells around them."""
    size = 1 << COARSE
    inner = [range(-(-span.start // size) * size, span.stop // size * size) for span in (rows, cols)]
    if pyramid is None or not all(len(span) for span in inner):
        return [(rows, cols)]
    middle, across = inner
    strips = [
        (range(rows.start, middle.start), cols),
        (range(middle.stop, rows.stop), cols),
        (middle, range(cols.start, across.start)),
        (middle, range(across.stop, cols.stop)),
    ]
    return [(middle, across, pyramid), *(strip for strip in strips if len(strip[0]) and len(strip[1]))]


def _within(name: str, index: int, length: int) -> None:
    if not 0 <= index < length:
        raise MapError(f"{name} {index} is out of range: the map has {length} ({name} 0 to {length - 1}).")
