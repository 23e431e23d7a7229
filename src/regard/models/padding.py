"""Finds the padding tokens of a batch from the masks of the layers.

Every layer's mask hides keys that are padding. So a token is padding if its own query may not see it, even if
that query may see other keys, as under BERT's mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.errors import RecordingError
from regard.maps import AttentionMap
from regard.masks import And, Dense, Mask
from regard.masks.live import LiveQueries
from regard.memo import remembered
from regard.models.recording import Recording

__all__ = ["Texts", "rows_of_text", "span_of", "without_padding"]

# The most pairs of a query and a key to evaluate at once.
CELLS = 1 << 22


class Texts:
    """Which tokens are text in one row of a recorded batch, per stack."""

    def __init__(self, recording: Recording, row: int = 0) -> None:
        self.recording, self.row = recording, row
        self._known: dict[tuple[str, int], Bool[Tensor, " n"]] = {}

    def sides(self, role: str, q: int, k: int) -> tuple[Bool[Tensor, " q"], Bool[Tensor, " k"]]:
        """Which of q queries and k keys of a stack are text."""
        if role in ("pooling", "predicting"):
            return torch.ones(q, dtype=torch.bool), torch.ones(k, dtype=torch.bool)
        if role != "cross":
            keys = self.tokens(role, k)
            return (keys[k - q :] if q <= k else keys.new_ones(q)), keys
        keys = self.tokens("encoder", k)
        for part in _parts(self._masks("cross", k)):
            keys = keys & _seen(part, q, k)
        return self.tokens("decoder", q), keys

    def tokens(self, role: str, n: int) -> Bool[Tensor, " n"]:
        """Which of the n tokens that a stack reads are text; all, if no layer hides any."""
        if (role, n) not in self._known:
            self._known[role, n] = _real(self._masks(role, n), n)
        return self._known[role, n]

    def _masks(self, role: str, k: int) -> list[Mask]:
        """The masks of a stack's layers with k keys."""
        found: list[Mask] = []
        for layer in self.recording.stack(role).values():
            seen = layer.map
            batch = seen.shape[0]
            if not -batch <= self.row < batch:
                raise RecordingError(f"row is {self.row}, and the batch has {batch} (rows 0 to {batch - 1}).")
            if seen.mask is not None and seen.shape[3] == k:
                found.append(seen.mask.select(self.row % batch))
        return found


def span_of(real: Bool[Tensor, " n"]) -> range:
    """The range from the first to the last token of a text; tokens outside are padding."""
    places = real.nonzero().flatten()
    return range(int(places[0]), int(places[-1]) + 1) if len(places) else range(len(real))


@remembered(2)  # layers mostly share a mask
def rows_of_text(mask: Mask | None, batch: int, n: int) -> Bool[Tensor, "batch n"] | None:
    """Which of the n tokens of every text are text, by the mask of a layer; None if all are."""
    if mask is None:
        return None
    real = torch.stack([_real([mask.select(row)], n) for row in range(batch if mask.batch else 1)])
    return None if bool(real.all()) else real.expand(batch, -1)


def without_padding(seen: AttentionMap, real: Bool[Tensor, "#batch q"]) -> AttentionMap:
    """The map in which padding queries see nothing, so that no statistic includes them."""
    p = seen.problem
    live = LiveQueries(real, p.offset)
    lse = seen.lse.masked_fill(~real.to(seen.device)[:, None], -torch.inf)
    return AttentionMap(replace(p, mask=live if p.mask is None else p.mask & live), lse)


def _real(masks: Sequence[Mask], n: int) -> Bool[Tensor, " n"]:
    real = torch.ones(n, dtype=torch.bool)
    for part in _parts(masks):
        real &= _own(part, n)
    return real


def _parts(masks: Iterable[Mask]) -> list[Mask]:
    """The distinct terms of the masks of one text, which are joined by `&`: layers share most of them."""
    found: list[Mask] = []
    for mask in masks:
        for part in mask.parts if isinstance(mask, And) else (mask,):
            if not any(part is other or part == other for other in found):
                found.append(part)
    return found


def _own(mask: Mask, n: int) -> Bool[Tensor, " n"]:
    """Which of n tokens may see themselves. If none may, the mask says nothing about padding."""
    position = torch.arange(n)
    seen = mask.allows(position, position).reshape(-1, n).any(0).cpu()
    if isinstance(mask, Dense):
        # The mask has no rows for tokens that are only keys.
        seen[: n - mask.allowed.shape[-2]] = True
    return seen if bool(seen.any()) else torch.ones_like(seen)


def _seen(mask: Mask, q: int, k: int) -> Bool[Tensor, " k"]:
    """Which of k keys any of q queries may see."""
    keys, seen = torch.arange(k), torch.zeros(k, dtype=torch.bool)
    for rows in torch.arange(k - q, k).split(max(1, CELLS // max(1, k))):
        seen |= mask.allows(rows[:, None], keys).reshape(-1, k).any(0).cpu()
    return seen if bool(seen.any()) else torch.ones_like(seen)
