"""Edges of a model's attention as users name them, and the cuts they mean in each layer."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.atlas.anatomy import Anatomy
from regard.atlas.cuts import Box, Uncut, joined
from regard.atlas.cutting import LayerCut
from regard.errors import MapError

__all__ = ["Edge", "Span", "cuts_of", "positions_of"]

Span = int | range | slice | Sequence[int] | None


@dataclass(frozen=True)
class Edge:
    """A query and a key in a head of a layer. Each is a number, several numbers, or None for all.

    Several are a range, a slice or a list. Queries and keys are positions in the text; negative ones count
    from its end, and slices end where the text ends.

    >>> Edge(layer=6, head=3, query=-1, key=range(10, 20))
    Edge(layer=6, head=3, query=-1, key=range(10, 20))
    """

    layer: Span = None
    head: Span = None
    query: Span = None
    key: Span = None


def cuts_of(
    anatomy: Anatomy,
    n: int,
    heads: Iterable[tuple[Span, Span]] = (),
    edges: Iterable[Edge | tuple[Span, Span, Span, Span]] = (),
    keys: Span = (),
) -> dict[int, LayerCut]:
    """The cuts in each layer of a model that reads n tokens."""
    asked = [_edge(edge) for edge in edges] + [_head(head) for head in heads]
    gone = positions_of("keys", keys, n)
    if gone is None or gone:
        asked.append(Edge(key=None if gone is None else gone))
    if not asked:
        raise MapError(
            "nothing was given to cut; give heads=[(layer, head)], edges=[Edge(layer, head, query, key)] or "
            "keys=[position]."
        )
    dead: dict[int, set[int]] = {layer: set() for layer in anatomy.heads}
    boxes: dict[int, list[Box]] = {layer: [] for layer in anatomy.heads}
    for edge in asked:
        queries, keys_ = (_flags(positions_of(*side, n), n) for side in _sides(edge))
        for layer, chosen in _heads_of(edge, anatomy).items():
            if queries is None and keys_ is None:
                dead[layer] |= set(range(anatomy.heads[layer]) if chosen is None else chosen)
            else:
                boxes[layer].append(Box(chosen, queries, keys_))
    found = {layer: _layer_cut(anatomy.heads[layer], n, dead[layer], boxes[layer]) for layer in anatomy.heads}
    return {layer: cut for layer, cut in found.items() if cut is not None}


def positions_of(name: str, span: Span, n: int) -> tuple[int, ...] | None:
    """The positions of a span in a text of n tokens, in order; None for all of them.

    >>> positions_of("keys", slice(-2, None), 9), positions_of("keys", [3, -1], 9)
    ((7, 8), (3, 8))
    """
    if span is None:
        return None
    if isinstance(span, slice):
        found = tuple(range(n)[span])
        if not found:
            raise MapError(f"{name} {span} holds none of the {n} tokens; wanted a part of 0 to {n - 1}.")
        return tuple(sorted(found))
    given = _numbers(name, span)
    wrong = [place for place in given if not -n <= place < n]
    if wrong:
        shown = span if isinstance(span, int | range) else wrong[0]
        raise MapError(
            f"{name} {shown} reaches outside the text; it has {n} tokens, so wanted 0 to {n - 1}, or "
            f"{-n} to -1 from the end."
        )
    return tuple(sorted({place % n for place in given}))


def _numbers(name: str, span: Any) -> list[int]:
    """Whole numbers, from one or several."""
    try:
        several = list(span)
    except TypeError:
        several = [span]
    try:
        return [operator.index(number) for number in several]
    except TypeError:
        raise MapError(
            f"{name} is {span!r}; wanted a whole number, a range, a slice, a list, or None for all."
        ) from None


def _edge(given: Any) -> Edge:
    if isinstance(given, Edge):
        return given
    if isinstance(given, tuple) and len(given) == 4:
        return Edge(*given)
    raise MapError(
        f"edges holds {given!r}; wanted Edge(layer, head, query, key), or the four of them as a tuple. Give "
        "edges as a list."
    )


def _head(given: Any) -> Edge:
    if isinstance(given, tuple) and len(given) == 2:
        return Edge(*given)
    raise MapError(f"heads holds {given!r}; wanted pairs (layer, head), as in heads=[(6, 3)].")


def _sides(edge: Edge) -> list[tuple[str, Span]]:
    return [("query", edge.query), ("key", edge.key)]


def _heads_of(edge: Edge, anatomy: Anatomy) -> dict[int, tuple[int, ...] | None]:
    """The layers of an edge, and the heads in each; None if these are all."""
    layers = _chosen("layer", edge.layer, max(anatomy.heads) + 1)
    found: dict[int, tuple[int, ...] | None] = {}
    for layer in anatomy.heads if layers is None else layers:
        anatomy.check(layer)
        heads = _chosen("head", edge.head, anatomy.heads[layer])
        for head in heads or ():
            anatomy.check(layer, head)
        found[layer] = None if heads is None or len(heads) == anatomy.heads[layer] else heads
    return found


def _chosen(name: str, span: Span, count: int) -> tuple[int, ...] | None:
    """Layers or heads. Unlike positions, they cannot be counted from the end."""
    if isinstance(span, slice):
        return positions_of(name, span, count)
    return None if span is None else tuple(sorted(set(_numbers(name, span))))


def _flags(positions: tuple[int, ...] | None, n: int) -> Tensor | None:
    if positions is None or len(positions) == n:
        return None
    flags = torch.zeros(n, dtype=torch.bool)
    flags[list(positions)] = True
    return flags


def _layer_cut(heads: int, n: int, dead: set[int], boxes: list[Box]) -> LayerCut | None:
    if not dead and not boxes:
        return None
    flags = None
    if dead:
        flags = torch.zeros(1, heads, dtype=torch.bool)
        flags[0, sorted(dead)] = True
    return LayerCut(flags, Uncut(joined(boxes), heads, n) if boxes else None)
