"""What a test of the page waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["PATIENCE", "eventually", "map_is_drawn", "until"]

# The most that Playwright waits for anything, in ms. It is no time limit but a way to end: as long as the
# watchdog waits for a test (faulthandler_timeout in pyproject.toml).
PATIENCE = 1_800_000


def until(page: Page, expression: str) -> None:
    """An expression of the page holds. Playwright's own waiting uses eval, which the policy forbids.

    The page itself looks again and again: a question from outside takes as much time as it spares.
    """
    look = "async () => { while (!(%s)) await new Promise((next) => setTimeout(next, 20)); }"
    page.evaluate(look % expression)


def eventually(page: Page, question: Callable[[], bool]) -> None:
    """A question about the page, asked from outside, is answered with yes."""
    while not question():
        page.wait_for_timeout(20)


def map_is_drawn(page: Page) -> None:
    """The map on screen has all its tiles."""
    until(page, "window.regard?.map?.settled() && window.regard.map.camera()")
