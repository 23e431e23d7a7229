"""The text the model reads: books, cleaned, with a few held out whole."""

from __future__ import annotations

import itertools
import lzma
import random
import re
from collections import Counter
from pathlib import Path

__all__ = ["clean", "hold_out", "plain", "read_books", "set_aside", "without_copies"]

# One spelling of each mark: with 4,096 tokens there is none to spare for four kinds of quotation mark.
MARKS = {
    "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "‚": "'", "′": "'",
    "—": "--", "–": "-", "…": "...", "\u00a0": " ", "ſ": "s", "œ": "oe", "Œ": "Oe", "æ": "ae", "Æ": "Ae",
}  # fmt: skip

_TABLE = str.maketrans(MARKS)
_NOT_STORY = re.compile(
    r"https?:|www\.|@|transcriber|gutenberg|internet archive|scanned by|proofread|\[illustration|\[footnote",
    re.IGNORECASE,
)
_NOT_LETTERS = re.compile(r"[^\w \n]+|[\d_]+")
_LONG = 120


def plain(text: str) -> str:
    """Typographic marks as ASCII has them; the tokenizer does the same to what users give it.

    >>> plain("“Well…” — said he")
    '"Well..." -- said he'
    """
    return text.translate(_TABLE)


def read_books(path: Path) -> list[str]:
    """The books of one .txt.xz file, three newlines apart, cleaned; those that held no story are left out."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        books = [clean(book) for book in re.split(r"\n{3,}", file.read())]
    return [book for book in books if book]


def clean(book: str) -> str:
    """A book without the notes of those who scanned it, without tables and without marks for italics.

    >>> clean("Scanned by a friend.\\n\\n_Once_ there   was a fox.\\n\\n| 12 | 34 | 56 |")
    'Once there was a fox.'
    """
    paragraphs = (re.sub(r"[ \t]+", " ", p).strip() for p in plain(book).replace("_", "").split("\n\n"))
    return "\n\n".join(p for p in paragraphs if _is_prose(p))


def _is_prose(paragraph: str) -> bool:
    if not paragraph or _NOT_STORY.search(paragraph):
        return False
    letters = len(_NOT_LETTERS.sub("", paragraph))
    return letters >= 0.8 * len(paragraph) or (len(paragraph) < 20 and letters > 0.5 * len(paragraph))


def hold_out(shelves: list[list[str]], share: float, seed: int = 0) -> tuple[list[str], list[str]]:
    """(training books, validation books): whole books, at least `share` of each shelf's characters held out.

    The corpus holds some stories in two editions, so only a book whose long paragraphs appear in no other
    book may be held out: otherwise the model would have read it. Books over a quarter of what is wanted are
    passed over too, so that the validation text is many books and not one.
    """
    own = [[_long_paragraphs(book) for book in shelf] for shelf in shelves]
    seen = Counter(p for shelf in own for paragraphs in shelf for p in set(paragraphs))
    train, validation = [], []
    for shelf, long in zip(shelves, own, strict=True):
        wanted = share * sum(map(len, shelf))
        order = list(range(len(shelf)))
        random.Random(seed).shuffle(order)
        held, size = set(), 0
        for index in order:
            elsewhere = sum(seen[p] > 1 for p in long[index])
            alone = len(long[index]) >= 10 and elsewhere <= 0.002 * len(long[index])
            if size < wanted and alone and len(shelf[index]) <= wanted / 4:
                held.add(index)
                size += len(shelf[index])
        train += [book for i, book in enumerate(shelf) if i not in held]
        validation += [shelf[i] for i in sorted(held)]
    return train, validation


def set_aside(books: list[str], count: int, characters: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """(the other books, `count` books at least so long that share no long paragraph with others).

    The 17 books of the validation text are short; loss at the end of a long context needs long ones.
    """
    own = [_long_paragraphs(book) for book in books]
    seen = Counter(p for paragraphs in own for p in set(paragraphs))
    order = list(range(len(books)))
    random.Random(seed).shuffle(order)
    alone = (
        i
        for i in order
        if len(books[i]) >= characters and sum(seen[p] > 1 for p in own[i]) <= 0.002 * len(own[i])
    )
    picked = set(itertools.islice(alone, count))
    return [b for i, b in enumerate(books) if i not in picked], [books[i] for i in sorted(picked)]


def without_copies(books: list[str], book: str) -> list[str]:
    """The books that share fewer than five long paragraphs with one, which shall stay unread."""
    own = set(_long_paragraphs(clean(book)))
    return [other for other in books if len(own.intersection(_long_paragraphs(other))) < 5]


def _long_paragraphs(book: str) -> list[int]:
    """What two editions of a story share: long paragraphs, down to their letters."""
    return [hash(re.sub(r"\W", "", p).lower()) for p in book.split("\n\n") if len(p) >= _LONG]
