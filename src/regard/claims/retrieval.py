"""Claims about retrieving a fact, by its depth in the text and the length of the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from regard.atlas import needle
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves, Grid
from regard.claims.subjects import model_name, roomy, spread, subject
from regard.claims.words import listed, number
from regard.models import sample_book

__all__ = ["CLAIMS"]

# Facts that the story does not have; each is asked for with its own beginning.
NEEDLES = (
    ("The name of the old grey donkey that lived behind the mill was", " Barnaby Thistle."),
    ("The secret word that the miller whispered to the owl was", " Pomegranate Lantern."),
    ("The colour of the door at the end of the winding lane was", " Cinnamon Yellow."),
)
# Tokens of the book that facts are hidden in, where the model reads as many.
LONG, SHORT = 3000, 400
LENGTHS, SHORT_LENGTHS = (500, 2000, 8000), (150, 300, 600)
# Gains in nats for each (needle, depth): how much likelier the answer is than without the needle.
Search = Callable[[int, Sequence[float]], list[list[float]]]


def searched(
    length: int, depths: Sequence[float], trained: bool = True, haystack: str | None = None
) -> list[list[float]]:
    """What a model gains from each needle at each depth of so many tokens, of the story if not told."""
    read = subject(trained)
    found = []
    for question, answer in NEEDLES:
        test = needle(
            read.model,
            read.tokenizer,
            haystack=haystack,
            needle=question + answer,
            question=question,
            answer=answer.removesuffix("."),
            depths=depths,
            length=length,
        )
        found.append([value - test.control for value in test.log_probability])
    return found


def measure_middle(
    search: Search | None = None, trained: bool = True, length: int | None = None, depths: int = 7
) -> Measurement:
    """How well three facts are found by depth: the log-probability of the answer over that without the "
    "fact."""
    places = [i / (depths - 1) for i in range(depths)]
    length = length or (LONG if roomy(LONG) else SHORT)
    gains = (search or (lambda n, at: searched(n, at, trained, sample_book())))(length, places)
    means = [spread(list(column)) for column in zip(*gains, strict=True)]
    inner = range(depths // 3, depths - depths // 3)
    middle = [sum(row[i] for i in inner) / len(inner) for row in gains]
    begin, end = (spread([row[at] - m for row, m in zip(gains, middle, strict=True)]) for at in (0, -1))
    return Measurement(
        {
            "model": model_name(),
            "tokens": length,
            "needles": len(gains),
            "depths": places,
            "gain_by_depth": [found.mean for found in means],
            "standard_error_by_depth": [found.error for found in means],
            "gain_in_the_middle": spread(middle).mean,
            "beginning_over_middle": begin.mean,
            "beginning_over_middle_error": begin.error,
            "end_over_middle": end.mean,
            "end_over_middle_error": end.error,
        },
        Curves({f"fact {i + 1}": (places, row) for i, row in enumerate(gains)}, "depth", "gain (nats)"),
    )


def judge_middle(m: Measurement) -> Verdict:
    if m["gain_in_the_middle"] < 0.5 and max(m["gain_by_depth"]) < 0.5:
        return Verdict.folklore(
            f"{m['model']} finds the facts nowhere: at best an answer gains "
            f"{number(max(m['gain_by_depth']), 2)} nats"
        )
    found = (
        f"in {m['model']}, of {m['tokens']} tokens, the answer to {m['needles']} facts gains "
        f"{number(m['gain_in_the_middle'])} nats where the fact stands in the middle, "
        f"{m['beginning_over_middle']:+.2f} ± {m['beginning_over_middle_error']:.2f} at the beginning and "
        f"{m['end_over_middle']:+.2f} ± {m['end_over_middle_error']:.2f} at the end"
    )
    more = {
        side: m[f"{name}_over_middle"] > max(2 * m[f"{name}_over_middle_error"], 0.1)
        for side, name in (("the beginning", "beginning"), ("the end", "end"))
    }
    if all(more.values()):
        return Verdict.holds(found)
    if any(more.values()):
        side = next(side for side, better in more.items() if better)
        return Verdict.conditional(f"only {side} is clearly better than the middle: {found}")
    return Verdict.folklore(f"neither end is clearly better than the middle: {found}")


def measure_length(
    search: Search | None = None, lengths: Sequence[int] | None = None, depths: int = 5
) -> Measurement:
    """Length by depth: what the answers gain, on average over the facts."""
    places = [i / (depths - 1) for i in range(depths)]
    lengths = lengths or (LENGTHS if roomy(LENGTHS[-1]) else SHORT_LENGTHS)
    look = search or (lambda n, at: searched(n, at, haystack=sample_book()))
    gains = {n: look(n, places) for n in lengths}
    cells = [torch.tensor(gains[n]).mean(0).tolist() for n in lengths]
    by_needle = {n: [sum(row) / len(row) for row in gains[n]] for n in lengths}
    loss = spread([a - b for a, b in zip(by_needle[lengths[0]], by_needle[lengths[-1]], strict=True)])
    return Measurement(
        {
            "model": model_name(),
            "lengths": list(lengths),
            "needles": len(gains[lengths[0]]),
            "gain_by_length": {str(n): spread(values).mean for n, values in by_needle.items()},
            "lost_from_shortest_to_longest": loss.mean,
            "lost_error": loss.error,
        },
        Grid(
            cells,
            "tokens",
            "depth",
            [str(n) for n in lengths],
            [f"{place:.0%}" for place in places],
            annotate=True,
        ),
    )


def judge_length(m: Measurement) -> Verdict:
    gains, lengths = m["gain_by_length"], m["lengths"]
    said = listed(f"{number(gain)} nats at {n} tokens" for n, gain in gains.items())
    found = (
        f"in {m['model']} the answer gains {said}, from {lengths[0]} to {lengths[-1]} tokens "
        f"{-m['lost_from_shortest_to_longest']:+.2f} ± {m['lost_error']:.2f} over {m['needles']} facts"
    )
    ordered = list(gains.values())
    if m["lost_from_shortest_to_longest"] <= max(2 * m["lost_error"], 0.1):
        return Verdict.folklore(f"no clear loss: {found}")
    if ordered == sorted(ordered, reverse=True):
        return Verdict.holds(found)
    return Verdict.conditional(f"on the whole, not step by step: {found}")


CLAIMS = (
    Claim(
        "lost-in-middle",
        "A fact in the middle of a context is found less well than one at its beginning or its end.",
        "Three facts hidden at seven depths of 3,000 tokens of a book (400 where a model reads fewer): how "
        "much likelier the answer becomes.",
        measure_middle,
        judge_middle,
        of_a_model=True,
    ),
    Claim(
        "needle-length",
        "The longer the context, the less well a fact in it is found.",
        "The same facts at five depths of 500, 2,000 and 8,000 tokens of a book (150, 300 and 600 where a "
        "model reads fewer).",
        measure_length,
        judge_length,
        of_a_model=True,
    ),
)
