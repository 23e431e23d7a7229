"""Parses and formats sizes, lengths and times with units."""

from __future__ import annotations

import re

from regard.errors import RegardError

__all__ = ["context_of", "in_bytes", "in_count", "in_seconds", "in_tokens", "size_of"]

SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
SIZES |= {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}
LENGTHS = {"": 1, "k": 2**10, "m": 2**20}


def size_of(text: str) -> int:
    """Parse bytes with a unit: GB is 10⁹, GiB is 2³⁰.

    >>> size_of("80GB"), size_of("1.5 GiB")
    (80000000000, 1610612736)
    """
    return _read(text, SIZES, "a size such as 80GB or 24GiB")


def context_of(text: str) -> int:
    """Parse a number of tokens; k is 1024, as in the names of context lengths.

    >>> context_of("128k"), context_of("1000"), context_of("1M")
    (131072, 1000, 1048576)
    """
    return _read(text, LENGTHS, "a length such as 4096 or 128k")


def _read(text: str, units: dict[str, int], wanted: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in units or float(found[1]) * units[found[2]] < 1:
        raise RegardError(f"{text!r} cannot be read; wanted {wanted}.")
    return int(float(found[1]) * units[found[2]]) if "." in found[1] else int(found[1]) * units[found[2]]


def in_bytes(number: int) -> str:
    """Bytes in decimal units.

    >>> in_bytes(1073741824), in_bytes(512)
    ('1.07 GB', '512 B')
    """
    return _short(number, ("B", "kB", "MB", "GB", "TB", "PB", "EB"), " ")


def in_count(number: int) -> str:
    """A count with a decimal prefix: T is 10¹², P is 10¹⁵.

    >>> in_count(6738415616), in_count(12)
    ('6.74 G', '12')
    """
    return _short(number, ("", "k", "M", "G", "T", "P", "E", "Z"), " ").strip()


def in_tokens(number: int) -> str:
    """Tokens, with k for 1024 if the number is a multiple of it.

    >>> in_tokens(131072), in_tokens(1000), in_tokens(1048576)
    ('128k', '1000', '1M')
    """
    for unit in ("m", "k"):
        if number >= LENGTHS[unit] and number % LENGTHS[unit] == 0:
            return f"{number // LENGTHS[unit]}{unit.upper() if unit == 'm' else unit}"
    return str(number)


def in_seconds(seconds: float) -> str:
    """A time with up to three digits.

    >>> in_seconds(0.0043), in_seconds(12.34), in_seconds(7200)
    ('4.3 ms', '12.3 s', '2 h')
    """
    for size, unit in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _short(number: int, units: tuple[str, ...], gap: str) -> str:
    value, index = float(number), 0
    # 999.6 would be written 1e+03.
    while value >= 999.5 and index + 1 < len(units):
        value, index = value / 1000, index + 1
    return f"{value:.3g}{gap}{units[index]}"
