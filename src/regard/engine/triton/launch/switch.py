"""The off switch: REGARD_REPLAY=0 makes every call run its own Python and Triton's public launch API."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

from regard.errors import BackendError

__all__ = ["replay_is_on", "replay_off"]

VARIABLE = "REGARD_REPLAY"


class _Here(local):
    off = False


_here = _Here()


def replay_is_on() -> bool:
    """Whether repeated calls are recorded and replayed in this thread; REGARD_REPLAY=0 turns it off.

    >>> with replay_off():
    ...     replay_is_on()
    False
    """
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise BackendError(f"{VARIABLE} is {value!r}; set it to 0 (off) or 1 (on, the default).")
    return value == "1" and not _here.off


@contextmanager
def replay_off() -> Iterator[None]:
    """Turn replaying off in this thread, for a measurement or a comparison."""
    before, _here.off = _here.off, True
    try:
        yield
    finally:
        _here.off = before
