"""What a test of the page waits for."""

from __future__ import annotations

from playwright.sync_api import Page

__all__ = ["map_is_drawn", "until"]


def until(page: Page, expression: str, seconds: float = 15) -> None:
    """An expression of the page holds. Playwright's own waiting uses eval, which the policy forbids.

    The page itself looks again and again: a question from outside takes as much time as it spares.
    """
    look = """async () => {
      const end = performance.now() + %d;
      while (!(%s)) {
        if (performance.now() > end) return false;
        await new Promise((next) => setTimeout(next, 20));
      }
      return true;
    }"""
    if not page.evaluate(look % (1000 * seconds, expression)):
        raise AssertionError(f"{expression} did not come true in {seconds} s")


def map_is_drawn(page: Page, seconds: float = 15) -> None:
    """The map on screen has all its tiles."""
    until(page, "window.regard?.map?.settled() && window.regard.map.camera()", seconds)
