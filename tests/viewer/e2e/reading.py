"""What a test reads off the map on screen, and how it gets there."""

from __future__ import annotations

from functools import partial

from playwright.sync_api import Page, expect

from viewer.e2e.waiting import eventually, map_is_drawn

__all__ = ["drag", "pixel", "weight_shown", "zoom_to"]


# Whether the map's scale changes within two seconds after the wheel was turned.
MOVED = """async (scale) => {
  for (let turn = 0; turn < 100 && window.regard.map.camera().scale === scale; turn++)
    await new Promise((next) => setTimeout(next, 20));
  return window.regard.map.camera().scale !== scale;
}"""


def weight_shown(page: Page) -> float:
    expect(page.get_by_test_id("readout")).to_have_attribute("aria-busy", "false")
    return float(page.get_by_test_id("cell-weight").get_attribute("data-value") or "nan")


def pixel(page: Page, query: int, key: int) -> list[int]:
    """The colour on screen in the middle of a cell."""
    return page.evaluate(
        """([query, key]) => {
          const { x, y } = window.regard.map.place(query, key);
          const canvas = document.querySelector('.osd canvas');
          const rect = canvas.getBoundingClientRect();
          const ratio = canvas.width / rect.width;
          const at = [Math.round((x - rect.left) * ratio), Math.round((y - rect.top) * ratio)];
          return [...canvas.getContext('2d').getImageData(at[0], at[1], 1, 1).data];
        }""",
        [query, key],
    )


def zoom_to(page: Page, query: int, key: int) -> dict[str, float]:
    """Turn the wheel over a cell until it is a square of its own; returns where on the screen it is."""
    place = f"window.regard.map.place({query}, {key})"
    for _ in range(80):
        spot = page.evaluate(place)
        page.mouse.move(spot["x"], spot["y"])
        if (scale := page.evaluate("window.regard.map.camera().scale")) > 16:
            map_is_drawn(page)
            return page.evaluate(place)  # where it is once nothing moves any more
        # A busy browser can lose a turn of the wheel: a person would turn it again, and so does this.
        eventually(page, partial(_turn, page, scale))
    raise AssertionError("the wheel does not zoom")


def _turn(page: Page, scale: float) -> bool:
    """Turn the wheel; whether the map has come closer."""
    page.mouse.wheel(0, -400)
    return page.evaluate(f"({MOVED})({scale!r})")


def drag(page: Page, query: int, key: int, down: int, right: int) -> None:
    """Take the map at a cell and pull it by so many cells."""
    scale = page.evaluate("window.regard.map.camera().scale")
    grip = page.evaluate(f"window.regard.map.place({query}, {key})")
    page.mouse.move(grip["x"], grip["y"])
    page.mouse.down()
    page.mouse.move(grip["x"] + right * scale, grip["y"] + down * scale, steps=8)
    page.mouse.up()
