"""Attention in a window around each token, as Longformer and LED compute it, laid out as a map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["Band", "is_banded"]


def is_banded(module: Any) -> bool:
    """Whether a module attends in a window, and makes one score for each distance."""
    return isinstance(getattr(module, "one_sided_attn_window_size", None), int)


class Band:
    """The scores of one call, which come in two parts: of each token's window, and of global tokens.

    All tokens see a global token, and it sees all. The first softmax has, for every query, the scores of the
    global keys and then those of its window; the second has the rows of the global queries.
    """

    def __init__(
        self, window: int, everywhere: Bool[Tensor, "batch n"], padding: Bool[Tensor, "batch n"]
    ) -> None:
        self.window, self.everywhere, self.padding = window, everywhere, padding
        self.scores = torch.empty(0)

    @classmethod
    def of(cls, module: Any, given: dict[str, Any]) -> Band:
        """A call of a module with arguments of these names."""
        return cls(module.one_sided_attn_window_size, given["is_index_global_attn"], given["is_index_masked"])

    @property
    def has_global_rows(self) -> bool:
        """Whether a second softmax follows."""
        return bool(self.everywhere.any())

    def add_windows(self, scores: Float[Tensor, "batch n heads some"]) -> None:
        """Scores of the global keys, then of each distance from -window to window."""
        batch, n, heads, some = scores.shape
        w = self.window
        wide = scores.new_full((batch, heads, n, n + 2 * w), -torch.inf)
        # Distance c - w of row i is key i + c - w: in this view every row begins one column later.
        strides = (*wide.stride()[:2], n + 2 * w + 1, 1)
        by_distance = scores[..., some - (2 * w + 1) :].transpose(1, 2)
        wide.as_strided(by_distance.shape, strides).copy_(by_distance)
        self.scores = wide[..., w : w + n]
        for row, number, place in self._global_tokens():
            self.scores[row, :, :, place] = scores[row, :, :, number].T
        self.scores.masked_fill_(self.padding[:, None, :, None], -torch.inf)

    def add_global_rows(self, scores: Float[Tensor, "batch heads some n"]) -> None:
        """Rows of the global queries, which have projections of their own."""
        for row, number, place in self._global_tokens():
            self.scores[row, :, place] = scores[row, :, number]

    def of_text(self, read: int | None) -> Float[Tensor, "batch heads n n"]:
        """The map's scores without the padding that the model appends to make whole windows."""
        n = self.scores.shape[-1]
        stop = read if read is not None and 0 < n - read < 2 * self.window else n
        return self.scores[:, :, :stop, :stop]

    def _global_tokens(self) -> Iterator[tuple[int, int, int]]:
        """The row, the number and the position of each."""
        for row, flags in enumerate(self.everywhere):
            for number, place in enumerate(flags.nonzero().flatten().tolist()):
                yield row, number, place
