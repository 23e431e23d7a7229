"""The reach of a layer: which keys its queries see, as needed to count cost."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from regard.errors import RegardError
from regard.masks import Causal, Chunk, Mask, Window

__all__ = ["FULL", "Reach"]

KINDS = ("full", "window", "chunk", "sparse", "mask")
# The most cells to count one by one, for masks without intervals; more would take minutes.
COUNTED = 1 << 28


@dataclass(frozen=True)
class Reach:
    """The keys that a layer's queries see.

    - `full`: all keys (in a causal layer, up to its own).
    - `window`: the `size` nearest keys, its own included; in a layer that is not causal, on either side.
    - `chunk`: the keys of its own chunk of `size` positions.
    - `sparse`: at most `size` keys, selected per query, so that the cache must hold all keys.
    - `mask`: the pairs of a mask of `regard.masks`, whether the layer is causal or not.

    >>> Reach("window", 2).pairs(3, 3), Reach("chunk", 2).pairs(3, 3), Reach().pairs(3, 3)
    (5, 4, 6)
    """

    kind: str = "full"
    size: int | None = None
    mask: Mask | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RegardError(f"a layer's attention is {self.kind!r}; wanted one of {', '.join(KINDS)}.")
        sized = self.kind in ("window", "chunk", "sparse")
        if sized and (not isinstance(self.size, int) or self.size < 1):
            raise RegardError(f"{self.kind} attention has the size {self.size}; wanted keys, 1 or more.")
        if not sized and self.size is not None:
            raise RegardError(f"{self.kind} attention has no size, and {self.size} was given; leave it out.")
        if (self.kind == "mask") != (self.mask is not None):
            raise RegardError("a mask and the kind 'mask' belong together: Reach('mask', mask=BigBird(...)).")

    @classmethod
    def parse(cls, text: str) -> Reach:
        """Parse a reach as written on the command line.

        >>> Reach.parse("chunk:8k")
        chunk:8192
        """
        found = re.fullmatch(r"(\w+?)(?::(\d+)(k?))?", text.strip().lower())
        if found is None or found[1] not in KINDS[:-1]:
            wanted = "full, window:4096, chunk:8192 or sparse:2048"
            raise RegardError(f"a layer's attention is {text!r}; wanted {wanted}.")
        size = int(found[2]) * (1024 if found[3] else 1) if found[2] else None
        return cls(found[1], size)

    def __repr__(self) -> str:
        shown = self.mask if self.kind == "mask" else self.size
        return self.kind if shown is None else f"{self.kind}:{shown}"

    def pairs(self, queries: int, keys: int, causal: bool = True) -> int:
        """The exact number of pairs that may attend; the last query sits on the last key.

        >>> Reach().pairs(1, 1000), Reach("window", 64).pairs(1, 1000), Reach("chunk", 64).pairs(1, 1000)
        (1000, 64, 40)
        """
        if not 0 <= queries <= keys:
            raise RegardError(f"{queries} queries against {keys} keys; wanted no more queries than keys.")
        if self.mask is not None:
            return _allowed(self.mask, queries, keys)
        if causal:
            return self._before(keys) - self._before(keys - queries)
        return self._both_sides(queries, keys)

    def kept(self, keys: int) -> int:
        """The number of tokens, out of `keys`, that a cache must hold for the next query.

        >>> Reach("window", 64).kept(1000), Reach("sparse", 64).kept(1000)
        (64, 1000)
        """
        return min(keys, self.size) if self.kind in ("window", "chunk") and self.size else keys

    def as_mask(self, causal: bool = True) -> Mask | None:
        """The mask of `regard.masks` with the same pairs; None if every pair may attend.

        >>> Reach("chunk", 4).as_mask()
        Causal() & Chunk(size=4)
        """
        if self.mask is not None:
            return self.mask
        if self.kind == "sparse":
            raise RegardError("sparse attention chooses its keys by their content: no mask can say which.")
        size = self.size or 1
        shape = {"full": None, "window": Window(size), "chunk": Chunk(size)}[self.kind]
        if not causal:
            return shape
        return Causal() if shape is None else Causal() & shape

    def _before(self, n: int) -> int:
        """The pairs of the first n queries of a causal layer."""
        size = self.size or n
        if self.kind == "chunk":
            whole, rest = divmod(n, size)
            return whole * _triangle(size) + _triangle(rest)
        return _ramp(n, size)

    def _both_sides(self, queries: int, keys: int) -> int:
        if self.kind == "window" and self.size:
            side, first = self.size - 1, keys - queries
            return queries + _ramp(keys - 1, side) - _ramp(first - 1, side) + _ramp(queries - 1, side)
        if self.kind == "chunk" and self.size:
            ragged = keys % self.size
            inside = min(queries, ragged)
            return inside * ragged + (queries - inside) * self.size
        return queries * min(keys, self.size or keys)


FULL = Reach()


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def _ramp(n: int, cap: int) -> int:
    """1 + 2 + … + n, with each term limited to `cap`."""
    if n <= 0:
        return 0
    low = min(n, cap)
    return _triangle(low) + (n - low) * cap


def _allowed(mask: Mask, queries: int, keys: int) -> int:
    spans = mask.spans(torch.arange(keys - queries, keys))
    if spans is not None:
        low, high = (end.clamp(0, keys) for end in spans)
        return int((high - low).clamp(min=0).sum())
    if queries * keys > COUNTED:
        raise RegardError(
            f"{mask} would have to be counted cell by cell, and {queries} × {keys} cells are too many; "
            f"wanted at most {COUNTED}. Use a shorter context, or Reach('sparse', keys per query)."
        )
    found = mask.dense(queries, keys)
    if found.dim() > 2 and found.shape[:-2].numel() > 1:
        raise RegardError(f"{mask} tells batch rows or heads apart; wanted one matrix for all of a layer.")
    return int(found.sum())
