"""The kind of head that retrieves from far away: a repeated passage, or a single key per query."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.atlas.kinds.finding import Kind, lifted, unfit
from regard.atlas.kinds.places import NO_DISTANCE
from regard.atlas.passages import PASSAGE
from regard.atlas.repeats import token_mass
from regard.atlas.tally import SINKS, Tally
from regard.cards import Finding
from regard.models.sites import APART

__all__ = ["RETRIEVAL", "unexplained"]

# The findings that the kind chooses from.
WAYS = 2


def _retrieval(tally: Tally, kind: Kind) -> list[Finding]:
    """The better of two findings: weight on the passage that comes again, or on single far keys."""
    found = []
    for passages, keys in zip(_passages(tally, kind), _keys(tally, kind), strict=True):
        # Without repeated passages, report the finding for keys; if both scores are 0, the one for passages.
        better = passages.score is not None and passages.score >= (keys.score or 0.0)
        found.append(passages if better else keys)
    return found


def _passages(tally: Tally, kind: Kind) -> list[Finding]:
    """Mean weight on the earlier occurrence of the next token, for queries whose passage occurred far back.

    In a text with a planted sentence and a question, these are the queries that predict the answer, whose
    weights `regard needle` reads. In a long story they are at repeated passages.
    """
    again = tally.words.repeating(tally.far) if tally.role == "decoder" else None
    if again is None or again.q_ids is None or again.k_ids is None:
        return [unfit(kind, "passages are not known")] * tally.heads
    even = tally.flat.by_token(again, 0, "before")
    # Of each head's own: a window hides the passage.
    able = even > 0
    queries = able.sum(-1)
    if not bool(queries.any()):
        return [unfit(kind, "no passage comes again far away")] * tally.heads
    sums = token_mass(tally.map, again.q_ids, again.k_ids, 0, "before").double()
    count, counts = queries.clamp(min=1), queries.expand(tally.heads)
    weight = (sums * able).sum(-1) / count
    return lifted(
        kind,
        weight,
        even.double().sum(-1) / count,
        queries,
        lambda head: (
            f"{float(weight[head]):.2f} of the weight is on the token that comes next, where it followed the "
            f"same {PASSAGE} tokens {tally.far} or more before, over {int(counts[head])} queries"
        ),
        sharpness=tally.sharpness,
        tries=WAYS,
    )


def _keys(tally: Tally, kind: Kind) -> list[Finding]:
    """Mean weight of each query's heaviest key, if it is far away and no simpler rule explains it.

    Random models have sharp rows at random keys, which are not a finding: so each heaviest weight is also
    placed on a random visible key, and the head must have more weight on far keys than that.
    """
    if tally.role in APART:
        return [unfit(kind, NO_DISTANCE)] * tally.heads
    reach = torch.maximum(tally.positions, tally.k - 1 - tally.positions)
    # A causal query has no keys after it.
    reach = tally.positions if tally.role == "decoder" else reach
    visible = tally.flat.visible
    able = (reach >= tally.far) & (visible > 0)  # (heads, q), heads 1 where they share a mask
    queries = able.sum(-1)
    if not bool(queries.any()):
        return [unfit(kind, f"no query has a key {tally.far} or more away")] * tally.heads
    kept, count = unexplained(tally) & able, queries.clamp(min=1)
    weight = (tally.top_weight * kept).sum(-1) / count
    chance = (able / visible.clamp(min=1).double()).sum(-1) / count
    far = tally.flat.far(tally.far, tally.first + SINKS).double() / visible.clamp(min=1)
    shuffled = (able * tally.top_weight * far).sum(-1) / count
    share = kept.sum(-1).double() / count
    note = "" if tally.words.k_ids is not None else " (tokens are not known: repeats are counted too)"
    return lifted(
        kind,
        weight,
        chance,
        queries,
        lambda head: (
            f"{float(share[head]):.0%} of the queries look hardest at a key {tally.far} or more away, "
            f"with {float(weight[head] / share[head].clamp(min=1e-9)):.2f} of their weight{note}"
        ),
        sharpness=tally.sharpness,
        tries=WAYS,
        shuffled=shuffled,
    )


def unexplained(tally: Tally) -> Tensor:
    """(heads, q): whether the heaviest key is far, and no sink, fixed place, repeated token or delimiter."""
    key = tally.top_key.clamp(min=0)
    away = tally.positions - key
    fixed_key = tally.key_sums.argmax(-1, keepdim=True)
    fixed_distance = tally.distances[tally.distance_sums.argmax(-1, keepdim=True)]
    kept = (tally.top_key >= 0) & (away.abs() >= tally.far)
    kept &= (key >= tally.first + SINKS) & (key != fixed_key) & (away != fixed_distance)
    words = tally.words
    if words.q_ids is not None and words.k_ids is not None:
        own, ids = words.q_ids.to(key.device), words.k_ids.to(key.device)
        kept &= (ids[key] != own) & (ids[(key - 1).clamp(min=0)] != own)
    if words.delimiters is not None:
        kept &= ~words.delimiters.to(key.device)[key]
    return kept


RETRIEVAL = Kind("retrieval", _retrieval)
