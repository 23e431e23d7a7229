"""Claims about tokens that draw weight: the first one, and a token's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.atlas import Atlas
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Grid
from regard.claims.subjects import Spread, model_name, spread, texts
from regard.claims.words import percent
from regard.errors import RegardError

__all__ = ["CLAIMS"]

# As in the atlas: a kind is found from a quarter of what chance leaves over.
FOUND = 0.25


def by_head(atlas: Atlas, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices, layer by head: the mean weight on the keys that make a kind, and the kind's score.

    Raises `RegardError` if the text cannot show the kind, as one of a dozen tokens.
    """
    layers = 1 + max(card.layer for card in atlas.heads)
    heads = 1 + max(card.head for card in atlas.heads)
    weight, score = torch.zeros(2, layers, heads, dtype=torch.float64)
    for card in atlas.heads:
        finding = card.findings[kind]
        if finding.weight is None or finding.score is None:
            raise RegardError(
                f"the weight on {kind!r} cannot be measured in layer {card.layer}, head {card.head} over "
                f"{atlas.tokens} tokens: {finding.evidence}. Use a longer text."
            )
        weight[card.layer, card.head], score[card.layer, card.head] = finding.weight, finding.score
    return weight, score


def _weights(atlases: Sequence[Atlas], kind: str) -> Measurement:
    every = [by_head(atlas, kind) for atlas in atlases]
    weight, score = (torch.stack(values).mean(0) for values in zip(*every, strict=True))
    by_text = spread([weights.mean().item() for weights, _ in every])
    found = [int((scores >= FOUND).sum()) for _, scores in every]
    atlas = atlases[0]
    layer, head = divmod(int(weight.argmax()), weight.shape[1])
    chance = next(iter(atlas.heads)).findings[kind].chance
    return Measurement(
        {
            "model": model_name(),
            "texts": len(atlases),
            "tokens": sum(each.tokens for each in atlases),
            "heads_found_by_text": found,
            "heads": weight.numel(),
            "heads_found": int((score >= FOUND).sum()),
            "mean_weight": by_text.mean,
            "standard_error": by_text.error,
            "even_spread": chance,
            "largest": weight.max().item(),
            "largest_in": f"layer {layer}, head {head}",
            "mean_by_layer": weight.mean(1).tolist(),
        },
        Grid(weight.tolist(), "layer", "head", limit=0.5, annotate=True),
    )


def measure_sinks(trained: bool = True, atlas: Atlas | None = None) -> Measurement:
    """The mean weight that queries give to the first token, head by head."""
    return _weights(_atlases(trained, atlas), "first-token sink")


def measure_diagonal(trained: bool = True, atlas: Atlas | None = None) -> Measurement:
    """The mean weight that tokens give to themselves, head by head."""
    return _weights(_atlases(trained, atlas), "self")


def _atlases(trained: bool, given: Atlas | None) -> list[Atlas]:
    return [read.atlas for read in texts(trained)] if given is None else [given]


def _judged(m: Measurement, what: str) -> Verdict:
    found = (
        f"in {m['model']}, over {m['texts']} texts of {m['tokens']} tokens in all, heads give {what} "
        f"{Spread(m['mean_weight'], m['standard_error'])} of their weight (mean and standard error over "
        f"texts; "
        f"an even spread: {percent(m['even_spread'])}), at most {percent(m['largest'])} ({m['largest_in']})"
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
            f"of what chance leaves over ({min(m['heads_found_by_text'])} to {max(m['heads_found_by_text'])} "
            f"by text); and this is one model: see others with regard claims --model"
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
        "One model reads four parts of a book: mean weight on the first token, by layer and head, with its "
        "standard error.",
        measure_sinks,
        judge_sinks,
        of_a_model=True,
    ),
    Claim(
        "diagonal",
        "Tokens attend strongly to themselves.",
        "One model reads four parts of a book: mean weight of a token on itself, by layer and head, with its "
        "standard error.",
        measure_diagonal,
        judge_diagonal,
        of_a_model=True,
    ),
)
