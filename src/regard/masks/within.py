"""Restricts a mask to some of the keys, renumbered from 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.masks.base import Mask
from regard.masks.documents import Documents
from regard.masks.joins import And, Or
from regard.masks.padding import Padding

__all__ = ["Moved", "within"]


def within(mask: Mask | None, keys: range, queries: int) -> Mask | None:
    """The mask over `keys` alone: key j was at keys.start + j, a query at p was at p + `queries`.

    For a mask of one batch row. None where every pair that is left may attend. Padding that is cut away
    leaves nothing behind, so that a text out of a padded batch has the mask that it has alone.

    >>> from regard.masks import Causal
    >>> within(Causal() & Padding(torch.tensor([False, False, True, True])), range(2, 4), 2)
    Causal()
    """
    if mask is None:
        return None
    if isinstance(mask, And):
        kept = [part for part in (within(part, keys, queries) for part in mask.parts) if part is not None]
        return And(*kept) if len(kept) > 1 else next(iter(kept), None)
    if isinstance(mask, Or):
        parts = [within(part, keys, queries) for part in mask.parts]
        known = [part for part in parts if part is not None]
        return Or(*known) if len(known) == len(parts) else None
    if isinstance(mask, Padding):
        valid = mask.valid[..., keys.start : keys.stop]
        return None if bool(valid.all()) else Padding(valid)
    if queries == keys.start:
        if mask.relative:
            return mask
        if isinstance(mask, Documents):
            ids = mask.ids[..., keys.start : keys.stop]
            one = bool((ids == ids[..., :1]).all()) and bool((ids >= 0).all())
            return None if one else Documents(ids=ids)
    return Moved(mask, queries, keys.start)


@dataclass(frozen=True, repr=False)
class Moved(Mask):
    """Another mask evaluated at positions shifted by `queries` and `keys`."""

    of: Mask
    queries: int
    keys: int

    @property
    def batch(self) -> int | None:
        return self.of.batch

    @property
    def heads(self) -> int | None:
        return self.of.heads

    @property
    def relative(self) -> bool:
        return self.of.relative

    @property
    def repeatable(self) -> bool:
        return self.of.repeatable

    def select(self, row: int) -> Mask:
        return self._around(lambda of: of.select(row))

    def bind(self, batch: int, heads: int) -> Mask:
        return self._around(lambda of: of.bind(batch, heads))

    def to(self, device: torch.device | str) -> Mask:
        return self._around(lambda of: of.to(device))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return self.of.allows(q + self.queries, k + self.keys)

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        q_edges, k_edges = (q_start, q_stop), (k_start, k_stop)
        return self.of.cover(*(x + self.queries for x in q_edges), *(x + self.keys for x in k_edges))

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor] | None:
        found = self.of.spans(q + self.queries)
        return None if found is None else (found[0] - self.keys, found[1] - self.keys)

    def _around(self, change: Callable[[Mask], Mask]) -> Mask:
        changed = change(self.of)
        return self if changed is self.of else Moved(changed, self.queries, self.keys)
