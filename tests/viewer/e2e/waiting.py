"""What a test of the page waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["PATIENCE", "map_is_drawn", "until"]

# How long to wait for anything, in ms. It takes a second or two, but machines that share their cores with
# others stand still at times. What a test waits for must come all the same.
PATIENCE = 60_000


def until(page: Page, expression: str) -> None:
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
    if not page.evaluate(look % (PATIENCE, expression)):
        raise AssertionError(f"{expression} did not come true in {PATIENCE / 1000:.0f} s")


def map_is_drawn(page: Page) -> None:
    """The map on screen has all its tiles."""
    until(page, "window.regard?.map?.settled() && window.regard.map.camera()")
