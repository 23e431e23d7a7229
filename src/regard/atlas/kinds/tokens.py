"""Kinds of heads that attend to a token: the same one, the one that followed it, or a delimiter."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.atlas.kinds.finding import Kind, lifted, unfit
from regard.atlas.repeats import token_mass
from regard.atlas.tally import Tally
from regard.cards import Finding
from regard.models.sites import APART

__all__ = ["DELIMITER", "DUPLICATE", "INDUCTION"]

# Which occurrences of a token count: earlier ones in a decoder, all others in an encoder, any in
# cross-attention.
PLACES = {"decoder": "before", "cross": "any"}
# Rows that are read at once for their weights on themselves.
ROWS = 128


def _by_token(shift: int, what: str):
    def judge(tally: Tally, kind: Kind) -> list[Finding]:
        words = tally.words
        if words.q_ids is None or words.k_ids is None:
            return [unfit(kind, words.no_ids)] * tally.heads
        places = PLACES.get(tally.role, "others")
        even = tally.flat.by_token(words, shift, places)
        able = even.amax(0) > 0
        queries = int(able.sum())
        if not queries:
            return [unfit(kind, "no token occurs twice")] * tally.heads
        sums = token_mass(tally.map, words.q_ids, words.k_ids, shift, places)
        weight = sums[:, able].double().mean(-1)
        return lifted(
            kind,
            weight,
            even[:, able].double().mean(-1),
            queries,
            lambda head: f"{float(weight[head]):.2f} of the weight is on {what}, over {queries} queries",
            sharpness=tally.sharpness,
        )

    return judge


def _delimiter(tally: Tally, kind: Kind) -> list[Finding]:
    """Mean weight on delimiters, except the first key, which is a sink, and a delimiter's weight on
    itself."""
    flags = tally.words.delimiters
    if flags is None:
        return [unfit(kind, tally.words.no_delimiters)] * tally.heads
    chosen = flags.to(tally.map.device).clone()
    chosen[tally.first : tally.first + 1] = False
    if not chosen.any():
        return [unfit(kind, "the text has no delimiters after its first token")] * tally.heads
    live = tally.flat.live.clamp(min=1)
    weight = (tally.key_sums[:, chosen].sum(-1) - _own(tally, chosen)) / live
    chance = (tally.flat.key_sums[:, chosen].sum(-1) - _own_even(tally, chosen)) / live
    count = int(chosen.sum())
    return lifted(
        kind,
        weight,
        chance,
        tally.flat.live,
        lambda head: f"{float(weight[head]):.2f} of the weight is on {count} delimiters",
        sharpness=tally.sharpness,
    )


def _own(tally: Tally, chosen: Tensor) -> Tensor | float:
    """The weight that the chosen tokens give to themselves."""
    if tally.role in APART:
        return 0.0
    total = tally.key_sums.new_zeros(tally.heads)
    keys = _with_a_query(tally, chosen)
    for part in keys.split(ROWS):
        tile = tally.map[0, :, part - (tally.k - tally.q), part]
        total += tile.diagonal(dim1=-2, dim2=-1).sum(-1)
    return total


def _own_even(tally: Tally, chosen: Tensor) -> Tensor | float:
    if tally.role in APART:
        return 0.0
    keys, flat = _with_a_query(tally, chosen), tally.flat
    visible = flat.visible[:, keys - (tally.k - tally.q)]
    if flat.mask is None:
        return (1 / visible.double()).sum(-1)
    # If a mask forbids a token itself, an even spread has no weight there.
    itself = flat.mask.allows(keys, keys).reshape(-1, len(keys))  # (heads, keys), heads 1 if they share
    return torch.where(itself, 1 / visible.clamp(min=1).double(), 0.0).sum(-1)


def _with_a_query(tally: Tally, chosen: Tensor) -> Tensor:
    keys = chosen.nonzero().flatten()
    return keys[keys >= tally.k - tally.q]


DUPLICATE = Kind("duplicate token", _by_token(0, "earlier places of the same token"))
INDUCTION = Kind("induction", _by_token(1, "tokens after the same token"))
DELIMITER = Kind("delimiter", _delimiter)
