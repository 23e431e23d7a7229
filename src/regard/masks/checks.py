"""Checks that masks share."""

from __future__ import annotations

import operator

import torch

from regard.errors import MaskError

__all__ = ["bounds", "fits", "whole"]

# Sums of two such numbers still fit into 64 bits.
MOST = 1 << 62


def whole(mask: object, name: str, value: object, least: int | None = None, remedy: str = "") -> int:
    """The value as an int, or MaskError if it is not a whole number, or is below `least`."""
    if torch.compiler.is_compiling() and isinstance(value, int) and not isinstance(value, bool):
        # Don't format a symbolic integer: that would specialise it to one number.
        return value
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        wrong = f", a {type(value).__name__}; it must be a whole number."
    elif abs(number) >= MOST:
        wrong = "; positions have 64 bits, so it must be below 2**62."
    elif least is not None and number < least:
        wrong = f"; it must be at least {least}.{' ' + remedy if remedy else ''}"
    else:
        return number
    raise MaskError(f"{type(mask).__name__} got {name}={value!r}{wrong}")


def bounds(name: str, given: object) -> tuple[int, int]:
    """The start and stop of a range of positions that holds at least one position."""
    if isinstance(given, range) and given.step != 1:
        raise MaskError(f"{name} is {given}; a tile is a range of positions with step 1.")
    pair = (given.start, given.stop) if isinstance(given, range) else given
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise MaskError(f"{name} is {given!r}; a tile is a range of positions, range(a, b) or (a, b).")
    start, stop = pair
    if not start < stop:
        raise MaskError(f"{name} is {given!r}, which holds no position; a tile holds at least one.")
    return start, stop


def fits(mask: object, what: str, held: int, name: str, got: int, remedy: str) -> None:
    """Raise MaskError unless a size of the call equals the size `held` of the mask."""
    if held != got:
        raise MaskError(f"{type(mask).__name__} holds {held} {what} and {name} has {got}; {remedy}.")
