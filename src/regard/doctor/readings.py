"""The possible readings of a module's projections as q, k and v of a number of heads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from torch import Tensor

from regard.doctor.anatomy import Anatomy, Column
from regard.doctor.recipe import Recipe, compute

__all__ = ["Reading", "meant_for", "odd", "readings"]

WORDS = {
    "query": ("q", "query", "queries", "wq", "qs", "qw", "toq", "fcq", "qproj", "queryproj", "xq"),
    "key": ("k", "key", "keys", "wk", "ks", "kw", "tok", "fck", "kproj", "keyproj", "xk"),
    "value": ("v", "value", "values", "wv", "vs", "vw", "tov", "fcv", "vproj", "valueproj", "xv"),
    "output": (
        "o",
        "out",
        "output",
        "wo",
        "proj",
        "dense",
        "fc",
        "fco",
        "oproj",
        "outproj",
        "toout",
        "c_proj",
    ),
}


@dataclass(frozen=True)
class Reading:
    """Which columns are q, k and v (None: the input itself), the heads, and how columns are laid out."""

    query: tuple[Column, ...] | None
    key: tuple[Column, ...] | None
    value: tuple[Column, ...] | None
    heads: int
    order: str = "hd"
    # Whether the parts were identified by their effect, and not guessed.
    certain: bool = True

    def expected(
        self,
        parts: tuple[Tensor, Tensor, Tensor],
        allowed: Tensor,
        recipe: Recipe,
        queries: int | None = None,
    ) -> Tensor | None:
        """The formula on these parts; `queries` keeps only the last ones."""
        q, k, v = parts
        width = q.shape[-1] // self.heads
        if q.shape[-1] % self.heads or not width or k.shape[-1] % width:
            return None
        groups = k.shape[-1] // width
        if not groups or self.heads % groups or v.shape[-1] % groups:
            return None
        if "v" not in (recipe.order[1], recipe.order[0]) and recipe.order != "qkv" and k.shape != v.shape:
            return None
        if recipe.order != "qkv" and not q.shape == k.shape == v.shape:
            return None
        if recipe.weights == "channels" and v.shape[-1] != k.shape[-1]:
            return None
        if self.order == "dh":
            q, k, v = (_turned(x, h) for x, h in ((q, self.heads), (k, groups), (v, groups)))
        q = q if queries is None else q[:, -queries:]
        out = compute(q, k, v, (self.heads, groups), allowed, recipe)
        return _turned(out, out.shape[-1] // self.heads) if self.order == "dh" else out


def _turned(x: Tensor, heads: int) -> Tensor:
    """Reorder columns from (channel, head) to (head, channel)."""
    return x.unflatten(-1, (-1, heads)).transpose(-1, -2).flatten(-2)


def meant_for(names: Sequence[str] | frozenset[str]) -> str | None:
    """The role that a weight's name suggests.

    >>> meant_for(["layers.0.W_query.weight"]), meant_for(["c_attn.weight"])
    ('query', None)
    """
    found = set()
    for name in names:
        parts = [part for part in re.split(r"[.\d]+", name.lower()) if part not in ("weight", "bias", "")]
        for part in reversed(parts):
            tokens = {part, part.replace("_", ""), *part.split("_")}
            said = {role for role, words in WORDS.items() if tokens & set(words)}
            inputs = said - {"output"}
            if len(inputs) == 1 or said == {"output"}:
                found |= inputs or said
                break
    return found.pop() if len(found) == 1 else None


def readings(anatomy: Anatomy, heads: int | None) -> list[Reading]:
    """All plausible readings, the likeliest first."""
    roles = anatomy.roles
    found = []
    if roles.query and roles.key and roles.value:
        certain = (tuple(roles.query), tuple(roles.key), tuple(roles.value))
        found += _with_heads(certain, heads, anatomy, True)
    if found and not roles.dead and not odd(anatomy, heads):
        return found
    for parts in _guesses(anatomy, heads):
        found += [r for r in _with_heads(parts, heads, anatomy, False) if r.order == "hd"]
    if not anatomy.places:
        found += [Reading(None, None, None, h) for h in ([heads] if heads else [1, 2, 4, 8])]
    return list(dict.fromkeys(found))


def odd(anatomy: Anatomy, heads: int | None) -> bool:
    """Whether the sizes of the parts don't fit together, so that their effects don't identify them."""
    roles = anatomy.roles
    q, k, v = len(roles.query), len(roles.key), len(roles.value)
    return bool(not q or k > q or (heads and (q % heads or k % max(q // heads, 1))) or (k != v and k == q))


def _with_heads(
    parts: tuple[tuple[Column, ...], ...], heads: int | None, anatomy: Anatomy, certain: bool
) -> Iterator[Reading]:
    width = len(parts[0])
    products = len({index for index, _ in parts[0]})
    counts = [heads] if heads else [products, *(h for h in range(1, 17) if width % h == 0)]
    for order in ("hd", "dh"):
        for count in dict.fromkeys(counts):
            if count and width % count == 0 and (order == "hd" or 1 < count < width):
                yield Reading(*parts, count, order, certain)  # type: ignore[arg-type]


def _guesses(anatomy: Anatomy, heads: int | None) -> Iterator[tuple[tuple[Column, ...], ...]]:
    """Parts guessed by name, by product or by thirds, if their effects don't identify them."""
    blocks = {
        index: tuple((index, column) for column in range(places.shape[-1]))
        for index, places in anatomy.places.items()
    }
    named: dict[str, tuple[Column, ...]] = {}
    for index, block in blocks.items():
        role = meant_for(anatomy.products[index].names)
        if role:
            named[role] = named.get(role, ()) + block
    if all(role in named for role in ("query", "key", "value")):
        yield named["query"], named["key"], named["value"]
        return
    if len(blocks) == 3:
        yield from permutations(blocks.values())  # type: ignore[misc]
    for block in blocks.values():
        third = len(block) // 3
        if len(block) % 3 == 0:
            yield from permutations((block[:third], block[third : 2 * third], block[2 * third :]))  # type: ignore
            if heads and third % heads == 0:
                yield _by_head(block, heads, third // heads)
    if len(blocks) == 2:
        one, two = blocks.values()
        for q, kv in ((one, two), (two, one)):
            half = len(kv) // 2
            yield q, kv[:half], kv[half:]


def _by_head(block: tuple[Column, ...], heads: int, width: int) -> tuple[tuple[Column, ...], ...]:
    """q, k and v of head 0, then of head 1, ..."""
    return tuple(
        tuple(block[(3 * h + part) * width + c] for h in range(heads) for c in range(width))
        for part in range(3)
    )
