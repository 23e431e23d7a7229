"""Which tokens of a batch are text and which are padding, read from the masks of the layers.

A model is given one flag per token, and every layer's mask hides the keys that are padding. So a token is
padding where its own query may not see it. Its query may still look at others, as under BERT's mask; it is
padding all the same.
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
from regard.models.recording import Recording

__all__ = ["Texts", "rows_of_text", "span_of", "without_padding"]

# At most so many pairs of a query and a key are evaluated at once.
CELLS = 1 << 22


class Texts:
    """What is text in one row of a recorded batch, stack by stack."""

    def __init__(self, recording: Recording, row: int = 0) -> None:
        self.recording, self.row = recording, row
        self._known: dict[tuple[str, int], Bool[Tensor, " n"]] = {}

    def sides(self, role: str, q: int, k: int) -> tuple[Bool[Tensor, " q"], Bool[Tensor, " k"]]:
        """Which of q queries and k keys of a stack are text."""
        if role != "cross":
            keys = self.tokens(role, k)
            return (keys[k - q :] if q <= k else keys.new_ones(q)), keys
        keys = self.tokens("encoder", k)
        for part in _parts(self._masks("cross", k)):
            keys = keys & _seen(part, q, k)
        return self.tokens("decoder", q), keys

    def tokens(self, role: str, n: int) -> Bool[Tensor, " n"]:
        """Which of the n tokens that a stack reads are text; all, where no layer hides any."""
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
    """From the first to the last token of a text; what lies outside is padding."""
    places = real.nonzero().flatten()
    return range(int(places[0]), int(places[-1]) + 1) if len(places) else range(len(real))


def rows_of_text(mask: Mask | None, batch: int, n: int) -> Bool[Tensor, "batch n"] | None:
    """Which of the n tokens of every text are no padding, under the mask of a layer; None where all are."""
    if mask is None:
        return None
    real = torch.stack([_real([mask.select(row)], n) for row in range(batch if mask.batch else 1)])
    return None if bool(real.all()) else real.expand(batch, -1)


def without_padding(seen: AttentionMap, real: Bool[Tensor, "#batch q"]) -> AttentionMap:
    """The map in which only queries that are text see anything: the others are in no statistic."""
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
    """What the masks of one text are joined of by `&`, each once: layers share most of it."""
    found: list[Mask] = []
    for mask in masks:
        for part in mask.parts if isinstance(mask, And) else (mask,):
            if not any(part is other or part == other for other in found):
                found.append(part)
    return found


def _own(mask: Mask, n: int) -> Bool[Tensor, " n"]:
    """Which of n tokens may see themselves. A mask under which none may does not speak of padding."""
    position = torch.arange(n)
    seen = mask.allows(position, position).reshape(-1, n).any(0).cpu()
    if isinstance(mask, Dense):
        # It has no rows for tokens that are keys only.
        seen[: n - mask.allowed.shape[-2]] = True
    return seen if bool(seen.any()) else torch.ones_like(seen)


def _seen(mask: Mask, q: int, k: int) -> Bool[Tensor, " k"]:
    """Which of k keys any of q queries may see."""
    keys, seen = torch.arange(k), torch.zeros(k, dtype=torch.bool)
    for rows in torch.arange(k - q, k).split(max(1, CELLS // max(1, k))):
        seen |= mask.allows(rows[:, None], keys).reshape(-1, k).any(0).cpu()
    return seen if bool(seen.any()) else torch.ones_like(seen)
