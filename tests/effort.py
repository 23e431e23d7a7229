"""How much of what could be tried is tried: a share in `make test`, everything with `pytest --exhaustive`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from zlib import crc32

from hypothesis import settings

__all__ = ["examples", "exhaust", "in_share", "is_exhaustive"]

T = TypeVar("T", bound=Callable[..., Any])
# Of the examples that a test of a property asks for, so many are drawn; at least LEAST.
PART, LEAST = 4, 8
_exhaustive = False


def is_exhaustive() -> bool:
    return _exhaustive


def exhaust(everything: bool) -> None:
    """Decide it, before tests are imported. Properties without `examples` are of 40."""
    global _exhaustive
    _exhaustive = everything
    # On CI every run draws the same examples: a change is judged by the change. Elsewhere they are new.
    settings.register_profile(
        "regard", deadline=None, max_examples=_drawn(40), derandomize="CI" in os.environ
    )
    settings.load_profile("regard")


def examples(count: int, **more: Any) -> settings:
    """Hypothesis's settings for a property that asks for so many examples."""
    return settings(max_examples=_drawn(count), **more)


def _drawn(count: int) -> int:
    return count if _exhaustive else min(count, max(LEAST, count // PART))


def in_share(name: str, of: int) -> bool:
    """Whether a test is in the share that `make test` runs: about one of so many, the same ones every time.

    By a hash: every n-th would keep some values of a product of parameters and none of the others.
    """
    return crc32(name.encode()) % of == 0
