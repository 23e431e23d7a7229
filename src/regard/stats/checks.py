"""Checks that statistics share."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from regard.errors import StatisticError

__all__ = ["at_most", "one_of", "whole"]


def whole(statistic: object, name: str, value: object, least: int) -> int:
    """The value as an int, or StatisticError if it is not a whole number, or is below `least`."""
    given = f"{type(statistic).__name__} got {name}={value!r}"
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise StatisticError(f"{given}, a {type(value).__name__}; it must be a whole number.")
    if number < least:
        raise StatisticError(f"{given}; it must be at least {least}.")
    return number


def at_most(statistic: object, k: int, things: str, count: int) -> None:
    """Raise StatisticError if a statistic requests more things than there are; with none at all it passes."""
    if 0 < count < k:
        name = type(statistic).__name__
        raise StatisticError(
            f"{name}(k={k}) asks for {k} {things}, and there are {count}; use {name}({count}) or fewer."
        )


def one_of(statistic: object, name: str, value: object, choices: Iterable[str]) -> None:
    """Raise StatisticError unless the value is one of a few words."""
    words = tuple(choices)
    if value not in words:
        wanted = " or ".join(repr(word) for word in words)
        raise StatisticError(f"{type(statistic).__name__} got {name}={value!r}; it must be {wanted}.")
