"""`Documents`: several texts packed into one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.errors import MaskError
from regard.masks.base import Mask
from regard.masks.checks import fits, whole
from regard.masks.held import HeldMask
from regard.masks.layout import Layout, document_spans
from regard.masks.tiles import agreement, same_rank, verdict

__all__ = ["Documents"]

PADDING = -1


@dataclass(frozen=True, repr=False, eq=False, init=False)
class Documents(HeldMask):
    """Pairs within one document, for several documents packed into one sequence.

    Give the `lengths` of consecutive documents, or the `ids` of each position's document, shape (n,) or
    (batch, n). Positions with a negative id are padding: they attend to nothing, and nothing attends to them.

    >>> from regard.masks import Causal
    >>> print((Causal() & Documents(lengths=[2, 3])).draw(5))
    # . . . .
    # # . . .
    . . # . .
    . . # # .
    . . # # #
    >>> print(Documents(ids=torch.tensor([7, 7, 8, -1])).draw(4))
    # # . .
    # # . .
    . . # .
    . . . .
    """

    lengths: tuple[int, ...] | None
    ids: Tensor

    def __init__(self, lengths: Sequence[int] | Tensor | None = None, ids: Tensor | None = None) -> None:
        if (lengths is None) == (ids is None):
            given = "neither" if ids is None else "both"
            raise MaskError(f"Documents got {given} of lengths and ids; give exactly one of them.")
        held = None if lengths is None else self._checked_lengths(lengths)
        if held is not None:
            ids = torch.arange(len(held)).repeat_interleave(torch.tensor(held))
        object.__setattr__(self, "lengths", held)
        self.hold("ids", self._checked_ids(ids))

    def _checked_lengths(self, lengths: Sequence[int] | Tensor) -> tuple[int, ...]:
        if isinstance(lengths, Tensor) and lengths.ndim != 1:
            raise MaskError(
                f"Documents got lengths of shape {tuple(lengths.shape)}; wanted one list of lengths."
            )
        listed = lengths.tolist() if isinstance(lengths, Tensor) else lengths
        held = tuple(whole(self, "a length", length, 0) for length in listed)
        if sum(held) == 0:
            raise MaskError(
                f"Documents got lengths={held}, which hold no position; give at least one of 1 or more."
            )
        return held

    def _checked_ids(self, ids: object) -> Tensor:
        if (
            not isinstance(ids, Tensor)
            or ids.is_floating_point()
            or ids.is_complex()
            or ids.dtype == torch.bool
        ):
            got = f"{ids.dtype} ids" if isinstance(ids, Tensor) else f"ids as a {type(ids).__name__}"
            raise MaskError(f"Documents got {got}; wanted an int tensor that names each position's document.")
        if ids.ndim not in (1, 2) or ids.numel() == 0:
            raise MaskError(
                f"Documents got ids of shape {tuple(ids.shape)}; wanted (n,) or (batch, n), not empty."
            )
        return ids.detach().to(torch.int64, copy=True)

    @property
    def content(self) -> Tensor:
        return self.ids

    def holding(self, content: Tensor) -> Mask:
        return Documents(ids=content)

    @property
    def batch(self) -> int | None:
        return self.ids.shape[0] if self.ids.ndim == 2 and self.ids.shape[0] != 1 else None

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        n = self.ids.shape[-1]
        fits(self, "positions", n, "k", k, "lengths must add up to k, and ids name every key")
        if q > n:
            raise MaskError(f"Documents holds {n} positions and q has {q}; every query must sit on a key.")
        if self.batch is not None:
            fits(self, "batch rows", self.batch, "q", batch, "give it one row of ids per sequence")

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = same_rank(q, k)
        of_q, of_k = self._document(q), self._document(k)
        return (of_q == of_k) & (of_q >= 0)

    def _document(self, position: Tensor) -> Tensor:
        n = self.ids.shape[-1]
        inside = (0 <= position) & (position < n)
        found = torch.where(inside, self.ids.to(position.device)[..., position.clamp(0, n - 1)], PADDING)
        return found if self.ids.ndim == 1 else found[:, None]

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        bounds = torch.broadcast_tensors(q_start, q_stop, k_start, k_stop)
        of_q, of_k = self._layout.stretch(*bounds[:2]), self._layout.stretch(*bounds[2:])
        full = (of_q.only >= 0) & (of_q.only == of_k.only)
        apart = (of_q.last < of_k.first) | (of_k.last < of_q.first)
        return agreement(verdict(full, empty=apart | ~of_q.some | ~of_k.some))

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor] | None:
        if self._spans is None:
            return None
        n = self.ids.shape[-1]
        inside = (0 <= q) & (q < n)
        low, high = (table[:, None, q.clamp(0, n - 1)] * inside for table in self._spans)
        return (low[0, 0], high[0, 0]) if self.ids.ndim == 1 else (low, high)

    @cached_property
    def _layout(self) -> Layout:
        return Layout(torch.atleast_2d(self.ids).cpu())

    @cached_property
    def _spans(self) -> tuple[Int64[Tensor, "rows n"], Int64[Tensor, "rows n"]] | None:
        return document_spans(torch.atleast_2d(self.ids).cpu())

    def __repr__(self) -> str:
        if self.lengths is not None and len(self.lengths) <= 8:
            return f"Documents(lengths={self.lengths})"
        shape = " × ".join(str(size) for size in self.ids.shape)
        return f"Documents(ids=<{shape}>)"
