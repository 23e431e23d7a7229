"""A mask of all pairs except those that were cut, as products of sets instead of a matrix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.masks import Coverage, Mask
from regard.masks.checks import fits

__all__ = ["Box", "Uncut", "joined"]


@dataclass(frozen=True, eq=False)
class Box:
    """All pairs of some queries and some keys, for some heads; None is all of them."""

    heads: tuple[int, ...] | None
    queries: Bool[Tensor, "queries"] | None
    keys: Bool[Tensor, "keys"] | None

    def holds(self, q: Tensor, k: Tensor) -> Tensor | None:
        """Whether each pair is in the box, ignoring heads; None if none is."""
        of_q = torch.ones_like(q, dtype=torch.bool) if self.queries is None else self.queries[q]
        of_k = torch.ones_like(k, dtype=torch.bool) if self.keys is None else self.keys[k]
        return of_q & of_k if bool(of_q.any()) and bool(of_k.any()) else None

    def to(self, device: torch.device | str) -> Box:
        queries, keys = (None if x is None else x.to(device) for x in (self.queries, self.keys))
        return replace(self, queries=queries, keys=keys)

    def share(self, axis: str, start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each range of positions contains some positions of the box, and whether it contains no
        others."""
        before = self._before.get(axis)
        if before is None:
            return start < stop, start < stop
        count = before[stop] - before[start]
        return count > 0, count == stop - start

    @cached_property
    def _before(self) -> dict[str, Tensor]:
        """The number of positions of the box before each position."""
        sides = {"q": self.queries, "k": self.keys}
        return {
            axis: torch.nn.functional.pad(flags.cumsum(0), (1, 0)).cpu()
            for axis, flags in sides.items()
            if flags is not None
        }


@dataclass(frozen=True, eq=False, repr=False)
class Uncut(Mask):
    """Every pair of `queries` and `length` keys except those in the boxes.

    There are as many queries as keys unless given.

    >>> key = torch.tensor([False, True, False])
    >>> print(Uncut((Box(None, None, key),), heads_in_all=2, length=3).draw(3))
    # . #
    # . #
    # . #
    """

    boxes: tuple[Box, ...]
    heads_in_all: int
    length: int
    queries: int | None = None

    @property
    def first(self) -> int:
        """The position of the first query: the last one sits on the last key."""
        return 0 if self.queries is None else self.length - self.queries

    @property
    def heads(self) -> int | None:
        return None if all(box.heads is None for box in self.boxes) else self.heads_in_all

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(q.shape, k.shape)
        allowed = torch.ones(1, self.heads or 1, *shape, dtype=torch.bool, device=q.device)
        for box in self.boxes:
            cut = box.to(q.device).holds(q - self.first, k)
            if cut is not None:
                allowed[:, slice(None) if box.heads is None else list(box.heads)] &= ~cut
        return allowed

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(q_start.shape, q_stop.shape, k_start.shape, k_stop.shape)
        found = torch.full(shape, Coverage.FULL, dtype=torch.int8)
        for box in self.boxes:
            some_q, only_q = box.share("q", q_start - self.first, q_stop - self.first)
            some_k, only_k = box.share("k", k_start, k_stop)
            found[(some_q & some_k).expand(shape) & (found == Coverage.FULL)] = Coverage.PARTIAL
            if box.heads is None:
                found[(only_q & only_k).expand(shape)] = Coverage.EMPTY
        return found

    def to(self, device: torch.device | str) -> Mask:
        return replace(self, boxes=tuple(box.to(device) for box in self.boxes))

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        fits(self, "positions", self.length, "k", k, "cut the text that the model reads")
        if self.queries is not None:
            fits(self, "queries", self.queries, "q", q, "cut the text that the model reads")
        if self.heads is not None:
            fits(self, "heads", self.heads_in_all, "q", heads, "cut heads of this layer")

    def __repr__(self) -> str:
        return f"Uncut({len(self.boxes)} {'box' if len(self.boxes) == 1 else 'boxes'})"


def joined(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Fewer boxes with the same pairs: boxes with the same heads and queries are merged."""
    found: dict[tuple[object, bytes | None], Box] = {}
    for box in boxes:
        queries = None if box.queries is None else box.queries.numpy().tobytes()
        known = found.get((box.heads, queries))
        if known is not None:
            whole = known.keys is None or box.keys is None
            box = replace(box, keys=None if whole else known.keys | box.keys)  # type: ignore[operator]
        found[box.heads, queries] = box
    return tuple(found.values())
