"""Heads made by hand, so that what they do is known, and recordings around any map."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard import AttentionMap, Causal
from regard.atlas.words import Words
from regard.models import Layer, Recording
from regard.models.identity import ModelIdentity
from regard.models.sites import Site

# The product of a code with itself is 64, with any other about 8 or less. Scores then differ enough for one
# key to have all the weight, and by less than the 87 nats from which on an exponential is 0 and slow.
CODE, SHARP = 64, 0.85
DELIMITER, VOCABULARY = 7, 600


def code(position: Tensor) -> Tensor:
    """Random signs for each position, (n, 64), always the same."""
    count = int(position.max()) + 1
    signs = torch.randint(0, 2, (count, CODE), generator=torch.Generator().manual_seed(4))
    return (2.0 * signs - 1)[position]


def pointer(target: Tensor) -> tuple[Tensor, Tensor]:
    """q and k of a head whose query i looks at key target[i], and at all keys alike where that is -1."""
    keys = code(torch.arange(len(target)))
    queries = SHARP * keys[target.clamp(min=0)] * (target >= 0)[:, None]
    return queries, keys


def story(n: int) -> Tensor:
    """Token ids without any period; every ninth or so is a delimiter."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(8, VOCABULARY, (n,), generator=generator)
    marks = torch.rand(n, generator=generator) < 0.11
    return torch.where(marks, DELIMITER, ids)


def latest(ids: Tensor) -> Tensor:
    """Where each token occurred last before, -1 where it did not."""
    seen: dict[int, int] = {}
    found = []
    for place, token in enumerate(ids.tolist()):
        found.append(seen.get(token, -1))
        seen[token] = place
    return torch.tensor(found)


def induction(n: int) -> tuple[Tensor, Tensor]:
    before = latest(story(n))
    return pointer(torch.where(before >= 0, before + 1, -1))


def local(n: int) -> tuple[Tensor, Tensor]:
    """One near key each, at distances that change from query to query."""
    place = torch.arange(n)
    return pointer((place - place * 7919 % 16).clamp(min=0))


def strided(n: int) -> tuple[Tensor, Tensor]:
    """Evenly on the keys at distances 0, 9, 18, …"""
    angle = 2 * math.pi * torch.arange(n).double() / 9
    x = torch.stack([angle.cos(), angle.sin()], -1).float()
    return 35 * x, x


def delimiter(n: int) -> tuple[Tensor, Tensor]:
    marks = (story(n) == DELIMITER).float()[:, None]
    return torch.full((n, 1), 40.0), marks


def retrieval(n: int) -> tuple[Tensor, Tensor]:
    """Some key of the first third of what it sees, another for every query."""
    place = torch.arange(n)
    share = torch.rand(n, generator=torch.Generator().manual_seed(2))
    return pointer((place * share * 0.33).long())


HEADS: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {
    "previous token": lambda n: pointer((torch.arange(n) - 1).clamp(min=0)),
    "self": lambda n: pointer(torch.arange(n)),
    "first-token sink": lambda n: pointer(torch.zeros(n, dtype=torch.long)),
    "duplicate token": lambda n: pointer(latest(story(n))),
    "induction": induction,
    "local": local,
    "strided": strided,
    "uniform": lambda n: (torch.zeros(n, 1), torch.zeros(n, 1)),
    "delimiter": delimiter,
    "retrieval": retrieval,
}


def head(kind: str, n: int) -> AttentionMap:
    """The map of one head made by hand."""
    q, k = HEADS[kind](n)
    return AttentionMap.of(q[None, None], k[None, None], mask=Causal(), scale=1.0)


def words(n: int) -> Words:
    ids = story(n)
    return Words(ids, ids, ids == DELIMITER)


def recording_of(*maps: AttentionMap, ids: Tensor | None = None, role: str = "decoder") -> Recording:
    """A recording whose layers have these maps."""
    recording = Recording(ModelIdentity("by hand", "ByHand", ""))
    for index, seen in enumerate(maps):
        layer = Layer(Site(f"layers.{index}", role, index))
        layer._map = seen
        recording.put(layer)
    if ids is not None:
        recording.token_ids[role] = ids
    return recording
