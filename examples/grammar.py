"""Grammar in the map: do heads join verbs to their subjects, and pronouns to names?

    python examples/grammar.py [--out DIR]

Sentences are made from a few words, so that it is known which noun a verb belongs to and whom a pronoun
means. Each has a rival, another noun or another name, which comes first in one half of the sentences and
second in the other, so that looking at a place is worth nothing. For every head of the bundled model: the
weight from the verb (or the pronoun) on the right word, less that on the rival. The head is chosen on half
of the sentences and judged on the rest, since of 54 heads one always looks good. A positive number says
that a head looks there, not that the model uses it. The same program asks any other model.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from regard.models import bundled, record
from regard.plots import heatmap

NOUNS = ["king", "boy", "cat", "dog", "queen"]
VERBS = ["ran", "sat", "came"]
BOYS, GIRLS = ["Tom", "Jack", "Peter"], ["Mary", "Alice", "Anne"]


class Case(NamedTuple):
    """A text, the word that asks (its last), the word it belongs to and the rival."""

    text: str
    right: str
    rival: str


def subjects() -> list[Case]:
    """The verb's subject and another noun, the rival being the nearer one as often as the farther."""
    cases = []
    for (a, b), verb in itertools.product(itertools.permutations(NOUNS, 2), VERBS):
        cases.append(Case(f"The {a} by the {b} {verb}", a, b))
        cases.append(Case(f"By the {b} the {a} {verb}", a, b))
    return cases


def pronouns() -> list[Case]:
    """Whom a pronoun means, the rival being named last as often as first."""
    cases = []
    for boy, girl, verb in itertools.product(BOYS, GIRLS, VERBS):
        for first, second in ((boy, girl), (girl, boy)):
            cases.append(Case(f"There {verb} {first} and {second}, and then he", boy, girl))
            cases.append(Case(f"There {verb} {first} and {second}, and then she", girl, boy))
    return cases


def preference(loaded, case: Case) -> torch.Tensor | None:
    """Weight on the right word less that on the rival, for every layer and head; None if a word is split."""
    recording = record(loaded, case.text, stats=())
    words = [token.text.strip() for token in recording.tokens]
    if words.count(case.right) != 1 or words.count(case.rival) != 1:
        return None
    right, rival = words.index(case.right), words.index(case.rival)
    rows = torch.stack([seen[0, :, -1] for seen in recording.maps.values()])
    return rows[..., right] - rows[..., rival]


def main(out: Path | None = None, every: int = 1) -> dict[str, float]:
    """Judge both questions (on every so many-th sentence), print the best head of each, draw all heads."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    loaded, results = bundled(), {}
    for name, cases in (("subjects", subjects()), ("pronouns", pronouns())):
        judged = [found for case in cases[::every] if (found := preference(loaded, case)) is not None]
        order = torch.randperm(len(judged))
        found = torch.stack(judged)[order]
        half = len(found) // 2
        chosen = int(found[:half].mean(0).argmax())
        layer, head = divmod(chosen, found.shape[2])
        held = found[half:, layer, head]
        error = held.std().item() / len(held) ** 0.5
        print(f"{name}: {len(found)} texts; layer {layer} head {head} prefers the right word by ", end="")
        print(f"{held.mean():+.3f} ± {error:.3f} where it was not chosen, in {(held > 0).float().mean():.0%}")
        results[name], results[f"{name} error"] = held.mean().item(), error
        figure = heatmap(
            found.mean(0),
            [f"layer {number}" for number in range(found.shape[1])],
            [str(number) for number in range(found.shape[2])],
            title=f"{name.capitalize()}: right word less rival",
            row_title="",
            column_title="head",
        )
        figure.savefig(folder / f"grammar_{name}.png", dpi=100)
    print(f"figures: {folder}")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
