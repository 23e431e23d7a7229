"""Help in a browser: keys, the tour, numbers in cells, what can be copied."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from regard.models import Recording
from viewer.e2e.waiting import eventually, map_is_drawn

CLIPBOARD = """() => {
  window.copied = null;
  const writeText = async (text) => { window.copied = text; };
  Object.defineProperty(navigator, 'clipboard', { value: { writeText } });
}"""


def test_a_question_mark_shows_the_keys_unless_one_types(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    page.get_by_test_id("jump").press("?")
    expect(page.get_by_test_id("help-keys")).to_be_hidden()
    page.get_by_test_id("map").press("?")
    expect(page.get_by_test_id("help-keys")).to_be_visible()
    expect(page.get_by_test_id("help-keys")).to_contain_text("cross-hair")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("help-keys")).to_be_hidden()


def test_the_tour_is_offered_once_and_leads_through_five_views(page: Page, server: str):
    page.goto(server)
    map_is_drawn(page)
    page.locator(".app-tools").get_by_test_id("tour-start").click()
    for number, view in enumerate(("map", "text", "token", "atlas", "matter"), 1):
        expect(page.get_by_test_id("tour")).to_contain_text(f"{number} of 5")
        expect(page.get_by_test_id(f"view-{view}")).to_be_visible()
        page.get_by_test_id("tour-next").click()
    expect(page.get_by_test_id("tour")).to_have_count(0)
    page.reload()
    expect(page.get_by_test_id("view-matter")).to_be_visible()
    expect(page.locator(".app-tools").get_by_test_id("tour-start")).to_have_count(0)


def test_a_weight_and_a_row_are_copied_at_full_precision(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/map?layer=5&head=0&query=600&key=539&x=539.5&y=600.5&z=6")
    map_is_drawn(page)
    page.evaluate(CLIPBOARD)
    page.get_by_test_id("copy-value").click()
    eventually(page, lambda: page.evaluate("window.copied") is not None)
    row = story.maps[5][0, 0, 600]
    assert float(page.evaluate("window.copied")) == pytest.approx(float(row[539]), rel=1e-6)
    page.evaluate("window.copied = null")
    page.get_by_test_id("copy-row").click()
    eventually(page, lambda: page.evaluate("window.copied") is not None)
    lines = page.evaluate("window.copied.split('\\r\\n')")
    assert (lines[0], len(lines)) == ("key,token,weight", 1 + len(row))
    number = float(lines[1 + 539].rsplit(",", 1)[1])
    assert number == pytest.approx(float(row[539]), rel=1e-6)


def test_a_copied_link_has_no_token(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    page.evaluate(CLIPBOARD)
    page.evaluate("history.replaceState(null, '', '/?token=secret' + location.hash)")
    page.get_by_test_id("export").locator("summary").click()
    page.get_by_role("button", name=re.compile("Copy link")).click()
    eventually(page, lambda: page.evaluate("window.copied") is not None)
    assert "secret" not in page.evaluate("window.copied")
    assert "layer=5" in page.evaluate("window.copied")


def test_numbers_stand_in_large_cells(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0&x=539.5&y=600.5&z=4.3")
    map_is_drawn(page)
    ink = """() => {
      const over = document.querySelector('canvas.over');
      const { data } = over.getContext('2d').getImageData(0, 0, over.width, over.height);
      let inked = 0;
      for (let i = 3; i < data.length; i += 4) if (data[i] > 100) inked++;
      return inked;
    }"""
    # However thick the letters of this machine are: with numbers there is much more ink than without.
    plain = page.evaluate(ink)
    page.evaluate("window.regard.map.center(600, 539, 64)")
    eventually(page, lambda: page.evaluate(ink) > 3 * plain + 300)
