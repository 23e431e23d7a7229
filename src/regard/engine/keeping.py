"""Objects that do not change, and keep what was found out about them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

__all__ = ["Keeper"]

Found = TypeVar("Found")


class Keeper:
    """What follows from an object is kept with it, and goes when it goes."""

    def once(self, name: Hashable, find: Callable[[], Found]) -> Found:
        """What `find` says; it is asked the first time only."""
        known = self.__dict__.setdefault("_known", {})
        if name not in known:
            known[name] = find()
        return known[name]
