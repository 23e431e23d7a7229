"""The map and the text without a mouse."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from regard.models import Recording
from viewer.e2e.waiting import map_is_drawn, until


def tab_to(page: Page, testid: str, most: int = 40) -> None:
    for _ in range(most):
        if page.evaluate("document.activeElement?.dataset.testid") == testid:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reached {testid}")


def test_a_cell_is_found_and_read_by_keys_alone(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    tab_to(page, "map")
    page.keyboard.press("Enter")  # the cell in the middle, close up
    until(page, "window.regard.map.camera().scale > 12")
    for key in ("ArrowDown", "ArrowDown", "ArrowLeft", "+", "-"):
        page.keyboard.press(key)
    # The address follows the keys, each after the other: the last one counts.
    until(page, r"/query=(\d+)&key=(\d+)/.exec(location.hash)?.slice(1).reduce((q, k) => q - k) === 3")
    query, key = (int(re.search(rf"{name}=(\d+)", page.url)[1]) for name in ("query", "key"))
    assert (query - key) == 3
    expect(page.get_by_test_id("readout")).to_have_attribute("aria-busy", "false")
    shown = float(page.get_by_test_id("cell-weight").get_attribute("data-value"))
    assert shown == pytest.approx(float(story.maps[5][0, 0, query, key]), rel=1e-5)
    expect(page.locator("#map-live")).to_contain_text(f"Query {query}")
    page.keyboard.press("0")
    until(page, "window.regard.map.camera().scale < 1")
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('query=')")


def test_tabs_and_tokens_are_walked_with_arrows(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    tab_to(page, "tab-map")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("view-text")).to_be_visible()
    tab_to(page, "page")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile(r"query=\d+"))
    expect(page.get_by_test_id("top-weight").first).to_be_visible()


def test_every_control_of_the_map_has_a_name_and_can_be_reached(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, summary, a')].filter((element) => {
          const label = element.closest('label');
          const name = element.getAttribute('aria-label') ?? element.textContent.trim() ?? '';
          return !name && !label?.textContent.trim();
        }).map((element) => element.outerHTML.slice(0, 120))"""
    )
    assert nameless == []
    for testid in ("map", "palette", "jump", "brush", "compare"):
        tab_to(page, testid)
