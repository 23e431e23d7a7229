"""Evidence for a kind and one token in every head, in a browser: the numbers and the ways to the map."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
import torch
from playwright.sync_api import Error, Page, expect

from regard.models import Recording
from viewer.e2e.waiting import eventually, map_is_drawn

OVER = "() => document.querySelector('canvas.over').toDataURL()"


def test_the_map_marks_what_speaks_for_induction_and_lists_the_places(page: Page, server, story: Recording):
    page.goto(f"{server}/#/map?layer=5&head=5")
    map_is_drawn(page)
    plain = page.evaluate(OVER)
    page.get_by_test_id("mark").select_option("induction")
    panel = page.get_by_test_id("evidence")
    expect(panel).to_contain_text("tokens that followed the same token")
    eventually(page, lambda: page.evaluate(OVER) != plain)
    first = page.get_by_test_id("places").locator("li").first
    button = first.get_by_role("button", name=re.compile("Map"))
    query, key = map(int, re.findall(r"\d+", button.get_attribute("aria-label") or ""))
    ids = story.token_ids["decoder"][0]
    assert ids[key - 1] == ids[query]
    assert f"{float(story.maps[5][0, 5, query, key]):.4f}" in first.inner_text()
    button.click()
    page.wait_for_url(re.compile(f"query={query}&key={key}.*mark=induction"))
    first.get_by_role("button", name=re.compile("Text")).click()
    expect(page.get_by_test_id("view-text")).to_be_visible()
    expect(page.get_by_test_id("summary")).to_contain_text(str(query))


def test_evidence_of_one_head_does_not_stand_under_another(page: Page, server):
    page.goto(f"{server}/#/map?layer=5&head=1&mark=induction")
    expect(page.get_by_test_id("places")).to_be_visible()
    held = []
    page.route(re.compile("/heads/2/evidence"), lambda route: held.append(route))
    page.get_by_role("button", name="Head: next").click()
    eventually(page, lambda: len(held) > 0)
    expect(page.get_by_test_id("places")).to_have_count(0)
    page.unroute_all(behavior="ignoreErrors")
    for route in held:
        with suppress(Error):  # the page may have taken its question back
            route.continue_()
    expect(page.get_by_test_id("places")).to_be_visible()


def test_one_query_is_shown_in_every_head_and_opens_in_the_map(page: Page, server, story: Recording):
    query = 600
    key = int(story.maps[6][0, 1, query].argmax())
    page.goto(f"{server}/#/token?query={query}&key={key}")
    expect(page.get_by_test_id("head-grid").get_by_role("gridcell")).to_have_count(54)
    cell = page.get_by_test_id("cell-6-1")
    cell.focus()
    wanted = float(story.maps[6][0, 1, query, key])
    assert float(page.get_by_test_id("token-weight").inner_text()) == pytest.approx(wanted, abs=5e-5)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("token-head")).to_contain_text("Layer 6, head 2")
    page.get_by_test_id("token-map").click()
    page.wait_for_url(re.compile(rf"#/map.*layer=6&head=2.*query={query}&key={key}"))
    map_is_drawn(page)


def test_one_key_shows_the_queries_that_attend_to_it(page: Page, server, story: Recording):
    page.goto(f"{server}/#/token?query=600&key=539&layer=3&head=3")
    page.get_by_test_id("side-key").click()
    column = story.maps[3][0, 3, :, 539]
    details = page.get_by_test_id("token-head")
    expect(details).to_contain_text(str(int(column.argmax())))
    expect(details).to_contain_text(f"{float(column.max()):.4f}")
    mean = torch.stack([story.maps[layer][0, :, :, 539].mean(0) for layer in range(9)]).mean(0)
    expect(page.get_by_test_id("others").locator("tbody tr").first).to_contain_text(str(int(mean.argmax())))
