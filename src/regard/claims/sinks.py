"""Claims about tokens that draw weight: the first one, and a token's own."""

from __future__ import annotations

import torch

from regard.atlas import Atlas
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Grid
from regard.claims.subjects import subject
from regard.claims.words import percent

__all__ = ["CLAIMS"]

# As in the atlas: a kind is found from a quarter of what chance leaves over.
FOUND = 0.25


def by_head(atlas: Atlas, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices, layer by head: the mean weight on the keys that make a kind, and the kind's score."""
    layers = 1 + max(card.layer for card in atlas.heads)
    heads = 1 + max(card.head for card in atlas.heads)
    weight, score = torch.zeros(2, layers, heads, dtype=torch.float64)
    for card in atlas.heads:
        weight[card.layer, card.head] = card.findings[kind].weight or 0.0
        score[card.layer, card.head] = card.findings[kind].score or 0.0
    return weight, score


def _weights(atlas: Atlas, kind: str) -> Measurement:
    weight, score = by_head(atlas, kind)
    layer, head = divmod(int(weight.argmax()), weight.shape[1])
    chance = next(iter(atlas.heads)).findings[kind].chance
    return Measurement(
        {
            "tokens": atlas.tokens,
            "heads": weight.numel(),
            "heads_found": int((score >= FOUND).sum()),
            "mean_weight": weight.mean().item(),
            "even_spread": chance,
            "largest": weight.max().item(),
            "largest_in": f"layer {layer}, head {head}",
            "mean_by_layer": weight.mean(1).tolist(),
        },
        Grid(weight.tolist(), "layer", "head", limit=0.5, annotate=True),
    )


def measure_sinks(trained: bool = True, atlas: Atlas | None = None) -> Measurement:
    """The mean weight that queries give to the first token, head by head."""
    return _weights(subject(trained).atlas if atlas is None else atlas, "first-token sink")


def measure_diagonal(trained: bool = True, atlas: Atlas | None = None) -> Measurement:
    """The mean weight that tokens give to themselves, head by head."""
    return _weights(subject(trained).atlas if atlas is None else atlas, "self")


def _judged(m: Measurement, what: str) -> Verdict:
    found = (
        f"over {m['tokens']} tokens the heads of the bundled model give {what} {percent(m['mean_weight'])} "
        f"of their weight on average (an even spread: {percent(m['even_spread'])}), at most "
        f"{percent(m['largest'])} ({m['largest_in']})"
    )
    means = m["mean_by_layer"]
    if len(means) > 1:
        found += f"; by layer it is {percent(min(means))} to {percent(max(means))}"
    share = m["heads_found"] / m["heads"]
    if share >= 0.5:
        return Verdict.holds(found)
    if m["heads_found"]:
        return Verdict.conditional(
            f"{found}. But it is the habit of {m['heads_found']} of {m['heads']} heads, those with a quarter "
            f"of what chance leaves over"
        )
    return Verdict.folklore(f"{found}; no head has a quarter of what chance leaves over")


def judge_sinks(m: Measurement) -> Verdict:
    return _judged(m, "the first token")


def judge_diagonal(m: Measurement) -> Verdict:
    return _judged(m, "the token itself")


CLAIMS = (
    Claim(
        "sinks",
        "Much of the weight goes to the first token.",
        "The bundled model reads the bundled story: mean weight on the first token, by layer and head.",
        measure_sinks,
        judge_sinks,
    ),
    Claim(
        "diagonal",
        "Tokens attend strongly to themselves.",
        "The bundled model reads the bundled story: mean weight of a token on itself, by layer and head.",
        measure_diagonal,
        judge_diagonal,
    ),
)
