"""Facts that rows of text hide and ask for again: who, where, and which word, all invented.

A model that has read the sentence can complete the question that begins like it, however far back it stands.
The needle of `regard needle` is none of these: its animal, its place and its name are not in the lists.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Fact", "encode_facts", "load_facts", "make_facts", "save_facts"]


def _words(text: str, between: str = " ") -> list[str]:
    return text.split(between)


LOOKS = _words(
    "little brown tall shy clever sleepy lame proud wooden silver broken green blue scarlet crooked "
    "quiet hungry cheerful spotted ragged golden ancient young lazy brave thin round blind merry "
    "grave"
)
ANIMALS = _words(
    "fox owl goose badger pony raven hare otter cat dog crow goat mouse rat toad lamb mule heron "
    "swan parrot weasel monkey squirrel tortoise rabbit lion bear wolf camel sparrow"
)
PEOPLE = _words(
    "sailor miller's-daughter blacksmith captain schoolmaster widow shepherd fiddler pedlar cook "
    "gardener pirate doctor tailor ferryman soldier baker thatcher judge piper"
)
THINGS = _words("ring lantern map violin kettle clock box key sword book ladder mirror coin drum whistle cup")
PLACES = _words(
    "under the bridge|beside the well|in the cellar|behind the church|on the island|near the harbour|"
    "at the crossroads|above the stable|in the hollow oak|beyond the marsh|by the old wall|"
    "in the north tower|at the edge of the wood|under the stairs|across the river|behind the bakery|"
    "on the hill|in the lighthouse",
    "|",
)
FIRST = _words(
    "Agnes Rupert Tobias Hester Magnus Pamela Quentin Ursula Felix Odette Jasper Wilma Cedric Lydia "
    "Nathan Opal Percival Rhoda Silas Thora Victor Winifred Amos Bridget Caleb Dorcas Ezra Flora "
    "Gideon Harriet"
)
LAST = _words(
    "Larch Pennywhistle Underhill Crane Ferrow Blackwood Sallow Winterbourne Marsh Tuckett Holloway "
    "Pike Featherstone Grubb Oakes Ramsbottom Sorrel Tansy Vane Wick Yarrow Hobday Lamb Copperfield "
    "Fenn Drake"
)
SYLLABLES = _words(
    "bar tor vin lu mo ska ber dri ol ten fa gru hel ip jor ke lam nu osh pel qua ri sel tu vo wem zan"
)
QUESTIONS = (
    "The name of the {look} {second} {animal} that lived {place} was",
    "The {look} {animal} that slept {place} was called",
    "The {look} {thing} that was lost {place} belonged to",
    "The secret word that opened the {look} gate {place} was",
    "The {look} {person} who waited {place} was named",
    "The number written on the {look} {thing} {place} was",
    "Everyone knew that the {look} {person} {place} was afraid of",
    "The {look} {second} {thing} was buried {place} by",
    "What the {look} {animal} wanted most was the {thing} of",
    "The {look} ship that sailed from the harbour {place} was the",
    "The treasure of the {look} {person} was hidden by",
    "The {look} {person} had a {second} {animal} whose name was",
)


@dataclass(frozen=True)
class Fact:
    """One fact as tokens: `question` begins a paragraph, `spaced` stands within one; `answer` ends both."""

    question: tuple[int, ...]
    spaced: tuple[int, ...]
    answer: tuple[int, ...]


def make_facts(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """(question, answer) pairs, no question twice.

    >>> for question, answer in make_facts(2, seed=3):
    ...     print(question + answer)
    The secret word that opened the spotted gate in the cellar was vohel
    What the proud squirrel wanted most was the cup of Bermo Quaoshtor
    """
    choose, found = random.Random(seed), {}
    while len(found) < count:
        form = choose.choice(QUESTIONS)
        look, second = choose.sample(LOOKS, 2)
        question = form.format(
            look=look,
            second=second,
            animal=choose.choice(ANIMALS),
            person=choose.choice(PEOPLE).replace("-", " "),
            thing=choose.choice(THINGS),
            place=choose.choice(PLACES),
        )
        found.setdefault(question, " " + _answer(form, choose))
    return list(found.items())


def _answer(form: str, choose: random.Random) -> str:
    if "number" in form:
        return str(choose.randrange(10, 10 ** choose.randint(2, 6)))
    if "word" in form:
        return _invented(choose).lower()
    return f"{_part(FIRST, choose)} {_part(LAST, choose)}"


def _part(known: Sequence[str], choose: random.Random) -> str:
    """Half of the names are invented, so that they cannot be guessed from their beginning."""
    return choose.choice(known) if choose.random() < 0.5 else _invented(choose)


def _invented(choose: random.Random) -> str:
    return "".join(choose.choices(SYLLABLES, k=choose.randint(2, 3))).capitalize()


def encode_facts(tokenizer: Tokenizer, facts: list[tuple[str, str]]) -> list[Fact]:
    """The same as tokens."""
    questions, spaced, answers = (
        [tuple(e.ids) for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        for texts in ([q for q, _ in facts], [f" {q}" for q, _ in facts], [a for _, a in facts])
    )
    return [Fact(*parts) for parts in zip(questions, spaced, answers, strict=True)]


def save_facts(path: Path, facts: list[Fact]) -> None:
    """Write facts as compressed JSON."""
    rows = [[fact.question, fact.spaced, fact.answer] for fact in facts]
    path.write_bytes(lzma.compress(json.dumps(rows, separators=(",", ":")).encode()))


def load_facts(path: Path) -> list[Fact]:
    """Read what `save_facts` wrote."""
    return [Fact(*map(tuple, row)) for row in json.loads(lzma.decompress(path.read_bytes()))]
