"""The page on a phone, 390 pixels wide."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from viewer.e2e.waiting import map_is_drawn

STICKING_OUT = """(width) => [...document.querySelectorAll('header *, .app-tools *, main, main > *, aside *')]
  .filter((element) => !element.closest('.app-tabs, .menu-sheet, .visually-hidden'))
  .filter((element) => element.getBoundingClientRect().right > width + 0.5)
  .map((element) => element.outerHTML.slice(0, 100))"""


@pytest.mark.parametrize("width", [390, 360])
def test_nothing_sticks_out(phone: Page, server: str, width: int):
    phone.set_viewport_size({"width": width, "height": 780})
    for view, told in ("map", "readout"), ("text", "summary"):
        phone.goto(f"{server}/#/{view}?layer=5&head=0&query=600&key=570")
        expect(phone.get_by_test_id(told)).to_contain_text("600")
        assert phone.evaluate("document.documentElement.scrollWidth") == width
        assert phone.evaluate(STICKING_OUT, width) == []


def test_a_tap_on_the_map_reads_a_cell(phone: Page, server: str):
    phone.goto(f"{server}/#/map?layer=5&head=0&x=560&y=600&z=4")
    map_is_drawn(phone)
    spot = phone.evaluate("window.regard.map.place(600, 560)")
    phone.touchscreen.tap(spot["x"], spot["y"])
    phone.wait_for_url(re.compile("query=600&key=560"))
    expect(phone.get_by_test_id("cell-distance")).to_have_text("40")


def test_all_tabs_can_be_reached(phone: Page, server: str):
    phone.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(phone)
    phone.get_by_test_id("tab-text").tap()
    expect(phone.get_by_test_id("view-text")).to_be_visible()
    phone.get_by_test_id("tab-try").scroll_into_view_if_needed()
    expect(phone.get_by_test_id("tab-try")).to_be_in_viewport()


def test_the_chosen_tab_is_on_screen_where_not_all_fit(phone: Page, server: str):
    phone.goto(f"{server}/#/check")
    expect(phone.get_by_test_id("tab-check")).to_be_in_viewport(ratio=1)
    phone.goto(f"{server}/#/map")
    expect(phone.get_by_test_id("tab-map")).to_be_in_viewport(ratio=1)
