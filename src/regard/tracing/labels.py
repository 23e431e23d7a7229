"""The names of queries and keys: checks given names, invents missing ones, makes names printable."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from regard.errors import MapError, ShapeError

__all__ = ["columns", "count", "find_query", "name_axes", "printable"]

LONGEST = 16


def name_axes(tokens: Any, key_tokens: Any, q: int, k: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """One name per query and one per key; tokens name both where there are as many keys as queries.

    >>> name_axes(None, ["le", "chat"], 1, 2)
    (('q0',), ('le', 'chat'))
    """
    queries = _checked("tokens", tokens, q, "queries")
    if key_tokens is None and tokens is not None and q == k:
        return queries, queries
    keys = _checked("key_tokens", key_tokens, k, "keys")
    return queries or _invented("q", q), keys or _invented("k", k)


def find_query(tokens: Sequence[str], query: int | str) -> int:
    """The index of a query given by index or by its token.

    >>> find_query(("The", "cat"), "cat"), find_query(("The", "cat"), -1)
    (1, 1)
    """
    if isinstance(query, str):
        found = [i for i, token in enumerate(tokens) if token == query]
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(map(str, found))
            raise MapError(f"query {query!r} occurs {len(found)} times, at {places}. Name one by its number.")
        raise MapError(f"no query is called {query!r}; there are {', '.join(map(repr, tokens))}.")
    if not -len(tokens) <= query < len(tokens):
        raise MapError(f"query {query} is out of range; there are {len(tokens)}, counted from 0.")
    return query % len(tokens)


def printable(token: str) -> str:
    """A token as a table label: one line, visible, not too long.

    >>> printable("a\\nb"), printable(""), printable("antidisestablishmentarianism")
    ('a␊b', '␣', 'antidisestablis…')
    """
    # Unicode has symbols for the first 33 control characters, in the same order.
    shown = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 else c if c.isprintable() else "�" for c in token)
    if not shown.strip():
        return "␣" * max(1, len(shown))
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def columns(text: str) -> int:
    """The width of a text in a terminal: CJK characters take two columns, combining accents none.

    >>> columns("cat"), columns("猫")
    (3, 2)
    """
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def count(number: int, one: str, many: str) -> str:
    """A number and its noun.

    >>> count(1, "query", "queries"), count(4096, "key", "keys")
    ('1 query', '4,096 keys')
    """
    return f"{number:,} {one if number == 1 else many}"


def _checked(name: str, given: Any, wanted: int, what: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        raise ShapeError(f"{name} is one string, {given!r}; give a list of strings, such as {name}.split().")
    if not isinstance(given, Iterable):
        raise ShapeError(f"{name} is a {type(given).__name__}; give a list of {wanted} strings.")
    names = tuple(str(token) for token in given)
    if len(names) != wanted:
        raise ShapeError(
            f"{name} holds {len(names)} names and there are {wanted} {what}; give one name each."
        )
    return names


def _invented(prefix: str, number: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{i}" for i in range(number))
