"""What a test of the page waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["PATIENCE", "eventually", "map_is_drawn", "until"]

# The most that a test waits for any one thing, in ms. A step takes seconds, on a slow machine too: what has
# not happened after five minutes never will, and the other tests should not wait for it.
PATIENCE = 300_000


def until(page: Page, expression: str) -> None:
    """An expression of the page holds. Playwright's own waiting uses eval, which the policy forbids.

    The page itself looks again and again: a question from outside takes as much time as it spares.
    """
    look = "async () => { const end = Date.now() + %d; for (;;) { if (%s) return true; "
    look += "if (Date.now() > end) return false; await new Promise((next) => setTimeout(next, 20)); } }"
    assert page.evaluate(look % (PATIENCE, expression)), f"never true: {expression}"


def eventually(page: Page, question: Callable[[], bool]) -> None:
    """A question about the page, asked from outside, is answered with yes."""
    end = time.monotonic() + PATIENCE / 1000
    while not question():
        assert time.monotonic() < end, "never answered with yes"
        page.wait_for_timeout(20)


def map_is_drawn(page: Page) -> None:
    """The map on screen has all its tiles."""
    until(page, "window.regard?.map?.settled() && window.regard.map.camera()")
