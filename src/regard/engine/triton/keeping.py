"""What follows from a mask and some lengths, kept for the next call with the same ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

__all__ = ["kept", "make_room"]

Made = TypeVar("Made")


def kept(make: Callable[..., Made]) -> Callable[..., Made]:
    """Remember what a function makes of a mask (its first argument) and the rest of its arguments.

    A mask that may say something else next time is asked again, and so is one that has no hash.
    """
    known = lru_cache(maxsize=64)(make)

    @wraps(make)
    def find(mask: Any, *rest: Any) -> Made:
        if mask is not None and not mask.repeatable:
            return make(mask, *rest)
        try:
            return known(mask, *rest)
        except TypeError:
            return make(mask, *rest)

    return find


def make_room(known: dict[Any, Any], most: int) -> None:
    """Let go of the oldest, so that one more is no more than `most`."""
    while len(known) >= most:
        del known[next(iter(known))]
