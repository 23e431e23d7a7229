"""Cancellation of long work: a callback that passes over a map call between their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["check", "may_stop", "stoppable"]

_asked: ContextVar[Callable[[], None] | None] = ContextVar("asked", default=None)


@contextmanager
def stoppable(ask: Callable[[], None]) -> Iterator[None]:
    """Within the block, passes over maps call `ask` several times a second; an exception that it raises ends
    them.

    >>> def ask():
    ...     raise TimeoutError
    >>> with stoppable(ask):
    ...     check()  # as passes over maps do between their parts
    Traceback (most recent call last):
    TimeoutError
    """
    token = _asked.set(ask)
    try:
        yield
    finally:
        _asked.reset(token)


def check() -> None:
    """Call the innermost `stoppable` block's callback, if there is one."""
    ask = _asked.get()
    if ask is not None:
        ask()


def may_stop() -> bool:
    """Whether a `stoppable` block is active; then work is done in small parts."""
    return _asked.get() is not None
