"""Wraps a single map as a recording of one layer, so that the viewer can show it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.errors import MapError
from regard.maps import AttentionMap
from regard.models import Layer, Recording
from regard.models.identity import ModelIdentity
from regard.models.segment import Segment
from regard.models.sites import Site
from regard.models.tokens import Token

__all__ = ["recording_of"]


class MapLayer(Layer):
    """A layer that has a map but no model."""

    def __init__(self, whole: AttentionMap) -> None:
        super().__init__(Site("map", "decoder", 0))
        self._whole = whole
        self.source = self._parts
        self.mask = self.first_mask = whole.mask

    @property
    def map(self) -> AttentionMap:
        return self._whole

    def _parts(self) -> list[Segment]:
        p = self._whole.problem
        return [Segment(self._whole.lse, {}, p.q, p.k, p.v)]


def recording_of(whole: AttentionMap, tokens: Sequence[str] | None = None) -> Recording:
    """A recording of a single map; `tokens` are the names of its keys, by default their positions.

    >>> import torch, regard
    >>> q = torch.zeros(1, 2, 3, 8)
    >>> made = recording_of(regard.AttentionMap.of(q, q), ["a", "b", "c"])
    >>> [token.text for token in made.tokens], made.maps[0].shape
    (['a', 'b', 'c'], (1, 2, 3, 3))
    """
    keys = whole.shape[3]
    if tokens is not None and len(tokens) != keys:
        raise MapError(f"{len(tokens)} tokens were given and the map has {keys} keys; name every key.")
    names = map(str, range(keys)) if tokens is None else map(str, tokens)
    made = Recording(ModelIdentity("attention map", type(whole).__name__, "0" * 64))
    made.put(MapLayer(whole))
    made.token_ids["decoder"] = torch.arange(keys)[None]
    made.restore_tokens([[Token(i, name, 0, 0) for i, name in enumerate(names)]])
    return made
