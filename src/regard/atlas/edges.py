"""Edges of a model's attention as users give them, and the cuts that they mean in each layer."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.atlas.anatomy import Anatomy, Place
from regard.atlas.cuts import Box, Uncut, joined
from regard.atlas.cutting import LayerCut
from regard.errors import MapError

__all__ = ["Edge", "Head", "Span", "cuts_of", "positions_of"]

Span = int | range | slice | Sequence[int] | None
# (layer, head), or (stack, layer, head) for a stack that is not the main one.
Head = tuple[Span, Span] | tuple[str, Span, Span]


@dataclass(frozen=True)
class Edge:
    """An edge: a query and a key in a head of a layer. Each is a number, several numbers, or None for all.

    Several numbers are a range, a slice or a list. Queries and keys are positions in the text; negative ones
    count from its end. `stack` is the layer's stack, such as "encoder" or "cross"; by default it is the
    decoder, or the model's only stack.

    >>> Edge(layer=6, head=3, query=-1, key=range(10, 20))
    Edge(layer=6, head=3, query=-1, key=range(10, 20), stack=None)
    """

    layer: Span = None
    head: Span = None
    query: Span = None
    key: Span = None
    stack: str | None = None


def cuts_of(
    anatomy: Anatomy,
    heads: Iterable[Head] = (),
    edges: Iterable[Edge | tuple[Span, Span, Span, Span]] = (),
    keys: Span = (),
    readers: Sequence[str] = (),
) -> dict[tuple[str, int], LayerCut]:
    """The cuts of each layer, by stack and number. `keys` are hidden in the stacks `readers`."""
    asked = [_edge(edge) for edge in edges] + [_head(head) for head in heads]
    readers = [stack for stack in readers if stack in anatomy.stacks] or [anatomy.main]
    longest = max(place.keys for place in anatomy.stacks[readers[0]].values())
    gone = positions_of("keys", keys, longest)
    if gone is None or gone:
        asked += [Edge(key=gone, stack=stack) for stack in readers]
    if not asked:
        raise MapError(
            "nothing was given to cut; give heads=[(layer, head)], edges=[Edge(layer, head, query, key)] or "
            "keys=[position]."
        )
    dead: dict[tuple[str, int], set[int]] = defaultdict(set)
    boxes: dict[tuple[str, int], list[Box]] = defaultdict(list)
    places = {(place.stack, place.layer): place for place in anatomy.sites.values()}
    for edge in asked:
        for name, chosen in _heads_of(edge, anatomy).items():
            place = places[name]
            queries = _flags(positions_of("query", edge.query, place.queries), place.queries)
            keys_ = _flags(positions_of("key", edge.key, place.keys), place.keys)
            if queries is None and keys_ is None:
                dead[name] |= set(range(place.heads) if chosen is None else chosen)
            else:
                boxes[name].append(Box(chosen, queries, keys_))
    return {name: _layer_cut(places[name], dead[name], boxes[name]) for name in {*dead, *boxes}}


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
    """Whole numbers, from one number or several."""
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
    if isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str):
        return Edge(*given[1:], stack=given[0])
    raise MapError(
        f"heads holds {given!r}; wanted pairs (layer, head), as in heads=[(6, 3)], or with the stack in "
        'front, as in heads=[("cross", 1, 3)].'
    )


def _heads_of(edge: Edge, anatomy: Anatomy) -> dict[tuple[str, int], tuple[int, ...] | None]:
    """The layers of an edge, and the heads in each; None if these are all."""
    places, stack = anatomy.layers_of(edge.stack), edge.stack or anatomy.main
    layers = _chosen("layer", edge.layer, max(places) + 1)
    found: dict[tuple[str, int], tuple[int, ...] | None] = {}
    for layer in places if layers is None else layers:
        anatomy.check(layer, stack=edge.stack)
        count = places[layer].heads
        heads = _chosen("head", edge.head, count)
        for head in heads or ():
            anatomy.check(layer, head, edge.stack)
        found[stack, layer] = None if heads is None or len(heads) == count else heads
    return found


def _chosen(name: str, span: Span, count: int) -> tuple[int, ...] | None:
    """The numbers of layers or heads. Unlike positions, they can't be counted from the end."""
    if isinstance(span, slice):
        return positions_of(name, span, count)
    return None if span is None else tuple(sorted(set(_numbers(name, span))))


def _flags(positions: tuple[int, ...] | None, n: int) -> Tensor | None:
    if positions is None or len(positions) == n:
        return None
    flags = torch.zeros(n, dtype=torch.bool)
    flags[list(positions)] = True
    return flags


def _layer_cut(place: Place, dead: set[int], boxes: list[Box]) -> LayerCut:
    flags = None
    if dead:
        flags = torch.zeros(1, place.heads, dtype=torch.bool)
        flags[0, sorted(dead)] = True
    if not boxes:
        return LayerCut(flags)
    queries = None if place.queries == place.keys else place.queries
    return LayerCut(flags, Uncut(joined(boxes), place.heads, place.keys, queries))
