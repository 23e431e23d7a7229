"""The map from afar: blocks and what they say, and windows of any size."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from regard.models import Recording
from viewer.e2e.waiting import eventually, map_is_drawn, until

WHOLE = """() => [...document.querySelectorAll('.pane .stage')].every((stage) => {
  const { clientWidth: width, clientHeight: height } = stage;
  const { x, y, scale } = window.regard.map.camera();
  return x - width / 2 / scale <= 0.5 && x + width / 2 / scale >= 2045.5
    && y - height / 2 / scale <= 0.5 && y + height / 2 / scale >= 2045.5;
})"""


def numbers(text: str) -> list[int]:
    return [int(x.replace(",", "")) for x in re.findall(r"[\d,]+", text)]


def test_a_block_says_its_maximum_its_mean_and_how_many_cells(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    spot = page.evaluate("window.regard.map.place(1500, 900)")
    page.mouse.move(spot["x"], spot["y"])
    name = page.get_by_test_id("block")
    expect(page.get_by_test_id("block-max")).to_have_attribute("data-value", re.compile("."))
    q0, q1, k0, k1 = numbers(name.inner_text())
    assert q0 <= 1500 <= q1
    assert k0 <= 900 <= k1
    side = q1 - q0 + 1
    assert side > 1
    tile = story.maps[5][0, 0, q0 : q1 + 1, k0 : k1 + 1]
    most, mean = (
        page.get_by_test_id(f"block-{name}").get_attribute("data-value") for name in ("max", "mean")
    )
    assert float(most) == pytest.approx(float(tile.max()), rel=1e-5)
    assert float(mean) == pytest.approx(float(tile.mean()), rel=1e-5)
    expect(page.get_by_test_id("block-cells")).to_have_text(str(side * side))
    at = int(tile.argmax())
    query, key = q0 + at // side, k0 + at % side
    where = page.get_by_test_id("block-where").inner_text()
    assert f" {query} " in where
    assert where.endswith(f" {key}")
    page.mouse.click(spot["x"], spot["y"])
    page.wait_for_url(re.compile(f"query={query}&key={key}"))


def test_a_block_across_the_diagonal_counts_the_cells_that_may_attend(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    spot = page.evaluate("window.regard.map.place(1000, 1000)")
    page.mouse.move(spot["x"], spot["y"])
    expect(page.get_by_test_id("block-cells")).to_contain_text("allowed")


def test_comparing_and_a_narrower_window_keep_all_of_the_map_on_screen(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    until(page, f"({WHOLE})()")
    page.get_by_test_id("compare").click()
    expect(page.locator(".pane")).to_have_count(2)
    until(page, f"({WHOLE})()")
    page.set_viewport_size({"width": 800, "height": 700})
    until(page, f"({WHOLE})()")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_test_id("compare-stop").click()
    until(page, f"({WHOLE})()")


def test_a_link_to_all_of_a_map_shows_all_of_it_in_any_window(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0&x=600&y=600&z=4")
    map_is_drawn(page)
    page.get_by_test_id("whole").click()
    eventually(page, lambda: "x=" not in page.url)


def test_a_map_that_is_seen_close_keeps_its_middle_in_a_narrower_window(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0&x=600.5&y=700.5&z=4")
    map_is_drawn(page)
    page.set_viewport_size({"width": 900, "height": 700})
    page.wait_for_timeout(200)
    camera = page.evaluate("window.regard.map.camera()")
    assert [round(camera[name], 1) for name in ("x", "y", "scale")] == [600.5, 700.5, 16]
