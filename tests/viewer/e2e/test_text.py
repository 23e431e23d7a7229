"""The text in a browser: what lights up is what Python says is heavy."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from regard.models import Recording
from viewer.e2e.waiting import eventually


def test_the_keys_of_a_query_light_up_by_weight(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/text?layer=5&head=0&query=600")
    token = page.locator("#token-600")
    expect(token).to_have_class(re.compile("shown"))
    row = story.maps[5][0, 0, 600]
    for key in (599, 600, 590):
        expect(page.locator(f"#token-{key}")).to_have_attribute("data-weight", re.compile("."))
        shown = float(page.locator(f"#token-{key}").get_attribute("data-weight") or "nan")
        assert shown == pytest.approx(float(row[key]), rel=1e-5)
    heaviest = page.get_by_test_id("top-weight").first
    expect(heaviest).to_have_text(f"{float(row.max()):.4f}")
    expect(page.locator("#token-601")).to_have_attribute("data-weight", "0")


def test_the_other_way_round_the_queries_of_a_key_light_up(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/text?layer=5&head=0&key=600&look=queries")
    column = story.maps[5][0, 0, :, 600]
    expect(page.get_by_test_id("top-weight").first).to_have_text(f"{float(column.max()):.4f}")
    expect(page.locator("#token-599")).to_have_attribute("data-weight", "0")


def test_all_heads_of_a_layer_can_be_seen_as_one(page: Page, server: str, story: Recording):
    rows = story.maps[5][0, :, 600]
    for heads, wanted in ("mean", rows.mean(0)), ("max", rows.amax(0)):
        page.goto(f"{server}/#/text?layer=5&head=0&query=600&heads={heads}")
        expect(page.get_by_test_id("top-weight").first).to_have_text(f"{float(wanted.max()):.4f}")


def test_clicking_a_word_chooses_it_and_pointing_previews_it(page: Page, server: str):
    page.goto(f"{server}/#/text?layer=5&head=0")
    page.locator("#token-20").hover()
    expect(page.get_by_test_id("summary")).to_contain_text("20")
    page.locator("#token-20").click()
    page.wait_for_url(re.compile("query=20"))


def test_a_token_is_lit_at_once_and_pieces_come_with_their_words(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/text?layer=5&head=0")
    row = story.maps[5][0, 0, 60]
    expect(page.get_by_test_id("top-weight").first).to_have_text(f"{float(row.max()):.4f}")
    expect(page.get_by_test_id("light-legend")).to_contain_text(f"{float(row.max()):.4f}")
    heaviest = int(row.argmax())
    near = "".join(token.text for token in story.tokens[max(0, heaviest - 4) : heaviest + 5]).split()
    shown = page.get_by_test_id("summary").locator(".fragment-around").first.inner_text()
    assert any(word in shown for word in near), (shown, near)


def test_words_have_the_weight_of_their_pieces(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/text?layer=5&head=0&query=600")
    row = story.maps[5][0, 0, 600]
    page.get_by_test_id("units-on").click()
    # “Tamsin” is of several tokens, of which the query is the second.
    word = page.locator("#token-599")
    expect(word).to_have_attribute("data-weight", re.compile("."))
    eventually(page, lambda: float(word.get_attribute("data-weight")) > float(row[599]) * 1.0001)
    assert float(word.get_attribute("data-weight")) == pytest.approx(float(row[599:601].sum()), rel=1e-5)


def test_the_strip_shows_light_off_the_screen_and_leads_there(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/text?layer=5&head=0&key=0&look=queries")
    strip = page.get_by_test_id("heat-strip")
    bright = """canvas => {
      const { data } = canvas.getContext('2d').getImageData(0, canvas.height / 2, 2, canvas.height / 2);
      return data.filter((_, i) => i % 4 === 3).filter(alpha => alpha > 20).length;
    }"""
    eventually(page, lambda: strip.evaluate(bright) > 0)
    assert page.locator("#token-2000").count() == 0
    box = strip.bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] - 2)
    expect(page.locator("#token-2040")).to_be_visible()


def test_only_the_lines_on_screen_are_in_the_page(page: Page, server: str):
    page.goto(f"{server}/#/text?layer=5&head=0&query=2040")
    expect(page.locator("#token-2040")).to_be_visible()
    assert page.locator("#token-0").count() == 0
    assert page.locator(".word").count() < 1000


def test_lines_join_queries_to_their_keys(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/text?layer=5&head=0&query=120&arcs=lines")
    lines = page.get_by_test_id("lines")
    expect(lines.locator(".edge").first).to_be_attached()
    tile = story.maps[5][0, 0, 76:136, 76:136]
    expect(lines.locator(".edge")).to_have_count(int((tile >= 0.02).sum()))
