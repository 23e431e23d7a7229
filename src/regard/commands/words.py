"""Words of a text, as readers know them, and the tokens that a tokenizer makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.models.tokens import Token

__all__ = ["query_named", "words_of"]


def query_named(query: str, tokens: Sequence[Token], names: Sequence[str]) -> tuple[int, str]:
    """The token that a word or a number means, and a note where the word is more than one token.

    A word that is cut into pieces means the last of them: only that one has read the whole word.
    """
    named = [i for i, name in enumerate(names) if name == query]
    if len(named) == 1:
        return named[0], ""
    words = words_of(tokens)
    found = [pieces for word, pieces in words if word == query] or [
        pieces for word, pieces in words if word.casefold() == query.casefold()
    ]
    if len(found) == 1:
        return found[0][-1], _note(query, [names[i] for i in found[0]])
    if len(found) > 1:
        places = ", ".join(str(pieces[-1]) for pieces in found)
        raise RegardError(f"query {query!r} occurs {len(found)} times, at {places}. Name one by its number.")
    if query.lstrip("-").isdecimal():
        at = int(query)
        if -len(names) <= at < len(names):
            return at % len(names), ""
        raise RegardError(f"query {at} is out of range; there are {len(names)}, counted from 0.")
    raise RegardError(
        f"no query is called {query!r}; there are {', '.join(repr(word) for word, _ in words)}."
    )


def _note(word: str, pieces: Sequence[str]) -> str:
    if len(pieces) == 1:
        return ""
    listed = f"{', '.join(map(repr, pieces[:-1]))} and {pieces[-1]!r}"
    cut = f"{word} is cut into {len(pieces)} tokens, {listed}"
    return f"{cut}; the last one is followed: it has read them all.\n"


def words_of(tokens: Sequence[Token]) -> list[tuple[str, list[int]]]:
    """The words of a text, and for each the tokens that hold a letter of it."""
    letters = {
        token.start + offset: (letter, i)
        for i, token in enumerate(tokens)
        for offset, letter in enumerate(token.text)
    }
    words: list[tuple[str, list[int]]] = []
    last = -2
    for place in sorted(letters):
        letter, i = letters[place]
        if not (letter.isalnum() or letter in "'’-_"):
            continue
        if place != last + 1:
            words.append(("", []))
        word, pieces = words[-1]
        words[-1] = (word + letter, pieces if i in pieces else [*pieces, i])
        last = place
    return words
