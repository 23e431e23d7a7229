"""Questions prepared for a visitor, in a browser: each leads to the head and the tokens that answer it."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from viewer.e2e.waiting import map_is_drawn


def follow(page: Page, question: str) -> None:
    page.get_by_test_id("questions").locator("summary").click()
    page.get_by_test_id(f"question-{question}").click()
    expect(page.get_by_test_id(f"question-{question}")).to_be_hidden()


@pytest.fixture(scope="module")
def found(server: str) -> dict:
    with httpx.Client(base_url=server, timeout=None) as client:
        story = client.get("/api/recordings").json()["default"]
        return client.get(f"/api/recordings/{story}/stacks/decoder/questions").json()


def test_the_story_is_asked_where_a_name_comes_back_and_which_head_finds_it(
    page: Page, server: str, found, story
):
    returning = found["returning"]
    head = returning["finders"][0]
    page.goto(f"{server}/#/map?palette=inferno")
    map_is_drawn(page)
    page.get_by_test_id("questions").locator("summary").click()
    expect(page.get_by_test_id("question-returns")).to_contain_text(f"“{returning['word']}” come back?")
    page.keyboard.press("Escape")
    follow(page, "returns")
    expect(page.get_by_test_id("view-text")).to_be_visible()
    expect(page.locator(f"#token-{returning['query']}")).to_have_class(re.compile("shown"))
    expect(page.get_by_test_id("pick-layer")).to_have_value(str(head["layer"]))
    expect(page.get_by_test_id("pick-head")).to_have_value(str(head["head"]))
    assert "palette=inferno" in page.url
    follow(page, "finder")
    expect(page.get_by_test_id("token-head")).to_contain_text(f"Layer {head['layer']}, head {head['head']}")
    weight = float(story.maps[head["layer"]][0, head["head"], returning["query"], returning["key"]])
    expect(page.get_by_test_id("token-weight")).to_have_text(re.compile(r"0\.\d"))
    assert float(page.get_by_test_id("token-weight").inner_text()) == pytest.approx(weight, abs=5e-5)


def test_the_farthest_look_is_shown_on_the_map(page: Page, server: str, found):
    farthest = found["farthest"]
    page.goto(f"{server}/#/text")
    follow(page, "farthest")
    map_is_drawn(page)
    expect(page.get_by_test_id("cell-distance")).to_have_text(f"{farthest['distance']:,}")
    expect(page.get_by_test_id("cell-rank")).to_have_text("1")
    camera = page.evaluate("window.regard.map.camera()")
    assert [round(camera[name], 1) for name in ("x", "y")] == [farthest["key"] + 0.5, farthest["query"] + 0.5]


def test_what_happens_without_the_heads_that_find_it_is_one_press_away(page: Page, server: str, short: str):
    path = f"{server}/api/recordings/{short}/stacks/decoder/questions"
    found = httpx.get(path, timeout=None).json()["returning"]
    page.goto(f"{server}/#/map?rec={short}")
    follow(page, "without")
    heads = [(one["layer"], one["head"]) for one in found["finders"]]
    several = len(heads) > 1
    if several:
        listed = page.get_by_test_id("cuts").locator("li")
        expect(listed).to_have_count(len(heads))
        expect(listed.first).to_contain_text(f"L{heads[0][0]} H{heads[0][1]}")
    page.get_by_test_id("block").click()
    expect(page.get_by_test_id("verdict")).to_contain_text("changed the next-token distribution by KL")
    expect(page.get_by_test_id("history")).to_contain_text(str(found["query"]))
