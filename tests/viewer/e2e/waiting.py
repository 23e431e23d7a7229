"""What a test of the page waits for."""

from __future__ import annotations

import time

from playwright.sync_api import Page

__all__ = ["map_is_drawn", "until"]


def until(page: Page, expression: str, seconds: float = 15) -> None:
    """An expression of the page holds. Playwright's own waiting uses eval, which the policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"() => Boolean({expression})"):
        if time.monotonic() > end:
            raise AssertionError(f"{expression} did not come true in {seconds} s")
        page.wait_for_timeout(20)


def map_is_drawn(page: Page, seconds: float = 15) -> None:
    """The map on screen has all its tiles."""
    until(page, "window.regard?.map?.settled() && window.regard.map.camera()", seconds)
