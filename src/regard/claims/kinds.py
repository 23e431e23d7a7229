"""Claims about what heads are for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from regard.atlas import Atlas, importance
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Curves
from regard.claims.subjects import PIECES, Spread, Subject, model_name, spread, subject, texts
from regard.claims.words import listed, number, percent
from regard.cost import preset

__all__ = ["CLAIMS"]

KINDS = ("previous token", "induction", "delimiter")
# A head costs something if the loss rises by a thousandth of itself without it.
FREE = 0.001


def measure_specialise(trained: bool = True, kinds: Sequence[str] = KINDS) -> Measurement:
    """Heads of each kind in the bundled model, and in an untrained copy of it."""
    given, random = subject(trained).atlas, subject(False).atlas
    counts = {kind: len(given.kinds.get(kind, ())) for kind in kinds}
    best = {kind: max(card.score(kind) or 0.0 for card in given.heads) for kind in kinds}
    chance = {kind: max(card.score(kind) or 0.0 for card in random.heads) for kind in kinds}
    any_kind = sum(any(kind in card.kinds for kind in kinds) for card in given.heads)
    return Measurement(
        {
            "heads": len(given.heads),
            "heads_of_a_kind": counts,
            "heads_of_any": any_kind,
            "best_score": best,
            "best_score_untrained": chance,
            "heads_untrained": sum(len(random.kinds.get(kind, ())) for kind in kinds),
        },
        Bars(
            list(kinds),
            {"bundled model": list(best.values()), "untrained": list(chance.values())},
            "best head's score",
            level=0.25,
        ),
    )


def judge_specialise(m: Measurement) -> Verdict:
    there = [kind for kind, count in m["heads_of_a_kind"].items() if count]
    said = listed(
        f"{count} {kind} (best score {m['best_score'][kind]:.2f}, untrained "
        f"{m['best_score_untrained'][kind]:.2f})"
        for kind, count in m["heads_of_a_kind"].items()
    )
    found = f"of {m['heads']} heads the atlas finds {said}; in an untrained copy {m['heads_untrained']}"
    if not there or m["heads_untrained"] >= m["heads_of_any"]:
        return Verdict.folklore(found)
    missing = [kind for kind in m["heads_of_a_kind"] if kind not in there]
    if missing:
        return Verdict.conditional(f"{found}; but it has no head for {listed(missing)}")
    if m["heads_of_any"] >= m["heads"] / 2:
        return Verdict.holds(found)
    return Verdict.conditional(
        f"{found}; but most heads are nothing of the sort: {m['heads'] - m['heads_of_any']} of {m['heads']}"
    )


def _rises(read: Subject, tokens: int) -> list[float]:
    """How far the loss over a text rises, relative to itself, with each head taken out."""
    found = importance(read.model, read.ids[:, :tokens])
    before, change = found.loss_before or 1.0, found.loss_change
    return [] if change is None else [float(c) / before for c in change.tolist()]


def measure_pruning(trained: bool = True, tokens: int = 250, pieces: int = 3) -> Measurement:
    """The loss over several texts with each head taken out in turn."""
    by_text = [_rises(read, tokens) for read in texts(trained, PIECES)[:pieces]]
    change = [sum(rises) / len(rises) for rises in zip(*by_text, strict=True)]
    free = [{head for head, rise in enumerate(rises) if rise < FREE} for rises in by_text]
    ordered = sorted(change, reverse=True)
    shares = spread([len(heads) / len(change) for heads in free])
    return Measurement(
        {
            "model": model_name(),
            "heads": len(change),
            "texts": len(by_text),
            "tokens": tokens,
            "bar": FREE,
            "share_free": shares.mean,
            "share_free_error": shares.error,
            "heads_free_in_some_text": len(set.union(*free)),
            "heads_free_in_every_text": len(set.intersection(*free)),
            "heads_better_without": sum(c < 0 for c in change),
            "median_rise": median(change),
            "largest_rise": max(change),
        },
        Bars(
            [str(i) if i % 8 == 0 else "" for i in range(len(ordered))],
            {"heads": [100 * c for c in ordered]},
            "rise of the loss (%)",
            "head, costliest first",
        ),
    )


def judge_pruning(m: Measurement) -> Verdict:
    share = m["share_free"]
    found = (
        f"in {m['model']}, taking out one of {m['heads']} heads raises the loss over {m['texts']} texts of "
        f"{m['tokens']} tokens by {percent(m['median_rise'])} in the median and "
        f"{percent(m['largest_rise'])} at most; {Spread(share, m['share_free_error'])} of heads cost less "
        f"than {percent(m['bar'])} of the loss (mean and standard error over texts)"
    )
    some, always = m["heads_free_in_some_text"], m["heads_free_in_every_text"]
    if share < 0.1:
        return Verdict.holds(found)
    if share <= 0.5:
        return Verdict.conditional(
            f"most heads cost something, and which do not depends on the text: {found}; {some} heads are "
            f"free "
            f"in some text, {always} in every one"
        )
    return Verdict.folklore(f"{found}; {some} heads are free in some text, {always} in every one")


KNOWN = ("gpt2", "llama-7b", "gpt3-175b")
STATISTICS = ("entropy", "mean_distance", "sink_mass", "top_weight")


def measure_spread(trained: bool = True, atlas: Atlas | None = None) -> Measurement:
    """How far heads differ, and how many of them look like the model's mean."""
    given = subject(trained).atlas if atlas is None else atlas
    values = {
        name: torch.tensor([float(card.statistics[name]) for card in given.heads], dtype=torch.float64)
        for name in STATISTICS
    }
    near = {
        name: ((x - x.mean()).abs() <= 0.1 * x.mean().abs()).double().mean().item()
        for name, x in values.items()
    }
    numbers: dict[str, Any] = {
        "heads": len(given.heads),
        "heads_of_known_models": {
            name: sum(layer.attention.heads for layer in preset(name).layers) for name in KNOWN
        },
        "smallest": {name: x.min().item() for name, x in values.items()},
        "largest": {name: x.max().item() for name, x in values.items()},
        "share_within_a_tenth_of_the_mean": near,
        "share_on_average": sum(near.values()) / len(near),
    }
    entropy, distance = values["entropy"].tolist(), values["mean_distance"].tolist()
    return Measurement(
        numbers,
        Curves(
            {"one head each": (entropy, distance)}, "mean entropy (nats)", "mean distance (tokens)", dots=True
        ),
    )


def judge_spread(m: Measurement) -> Verdict:
    share = m["share_on_average"]
    known = listed(f"{count:,} in {name}" for name, count in m["heads_of_known_models"].items())
    found = (
        f"over {m['heads']} heads ({known}) entropy runs from {number(m['smallest']['entropy'])} to "
        f"{number(m['largest']['entropy'])} nats, the mean distance from "
        f"{number(m['smallest']['mean_distance'])} to {number(m['largest']['mean_distance'])} tokens, and "
        f"{percent(share)} of heads are within a tenth of the model's mean"
    )
    if share < 1 / 3:
        return Verdict.holds(found)
    if share < 2 / 3:
        return Verdict.conditional(f"for some statistics: {found}")
    return Verdict.folklore(f"heads are alike: {found}")


CLAIMS = (
    Claim(
        "heads-specialise",
        "Heads specialise: some look at the previous token, some continue what was seen before, some look at "
        "delimiters.",
        "The atlas of the bundled model on the bundled story, and of an untrained copy.",
        measure_specialise,
        judge_specialise,
        of_a_model=True,
    ),
    Claim(
        "pruning-not-free",
        "Taking out a head is rarely free.",
        "The loss of one model over three texts with each head knocked out; free is less than 0.1 %.",
        measure_pruning,
        judge_pruning,
        of_a_model=True,
    ),
    Claim(
        "one-map-is-little",
        "One heatmap says little, since a model has a great many heads and they differ.",
        "Entropy, distance, sinks and largest weight of every head, and how many are like the mean.",
        measure_spread,
        judge_spread,
        of_a_model=True,
    ),
)
