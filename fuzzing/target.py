"""`Target`: one thing that is fuzzed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Target", "seed_of"]


@dataclass(frozen=True)
class Target:
    """One thing that is fuzzed: `check(seed)` makes random inputs from the seed and raises if one is wrong.

    It returns how many cases it judged: a case is one answer of regard's (a call, a tile, an index, a step)
    that was compared with an oracle's. `tested` is how many seeds the tests run.
    """

    name: str
    about: str
    check: Callable[[int], int]
    tested: int


def seed_of(base: int, target: str, number: int) -> int:
    """The seed of the n-th check of a target in a run with this base seed."""
    digest = hashlib.blake2b(f"{base} {target} {number}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")
