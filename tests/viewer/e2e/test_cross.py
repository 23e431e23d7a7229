"""Cross-attention in a browser: two texts, each on its own axis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from regard.models import Recording
from viewer.e2e.conftest import served_here
from viewer.e2e.files import export
from viewer.e2e.reading import weight_shown
from viewer.e2e.waiting import map_is_drawn
from viewer.samples import TOKENS, WORDS, saved, translated


@pytest.fixture(scope="module")
def made() -> Recording:
    return translated()


@pytest.fixture(scope="module")
def address(made: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cross")
    yield from served_here(folder / "cache", saved(made, folder / "translated.regard"))


def test_the_map_names_queries_and_keys_from_their_own_texts(page: Page, address: str, made: Recording):
    page.goto(f"{address}/#/map?role=cross&layer=0&head=1&query=3&key=42")
    map_is_drawn(page)
    readout = page.get_by_test_id("readout")
    expect(readout.locator(".token.query .token-text")).to_have_text(TOKENS[3].strip())
    expect(readout.locator(".token.key .token-text")).to_have_text(WORDS[42 % 4].strip())
    assert weight_shown(page) == pytest.approx(float(made.cross.maps[0][0, 1, 3, 42]), rel=1e-5)
    expect(readout).not_to_contain_text("distance")  # there is none between two texts
    expect(page.locator("#map-live")).to_contain_text(f"key 42, “{WORDS[42 % 4].strip()}”")

    # A word is looked for on the axis it is on.
    page.get_by_test_id("jump").fill("schläft")
    expect(page.locator(".search-found")).to_contain_text("Not in this text")
    page.get_by_role("group", name="Go to it as").get_by_text("key").click()
    page.get_by_test_id("jump").press("Enter")
    page.wait_for_url(re.compile("query=3&key=3"))


def test_a_token_of_one_text_lights_up_the_other_and_back(page: Page, address: str, made: Recording):
    page.goto(f"{address}/#/text?role=cross&layer=0&head=1&query=3")
    weights = made.cross.maps[0][0, 1]
    heaviest = int(weights[3].argmax())
    expect(page.get_by_test_id("page")).to_contain_text("alert(1)")
    expect(page.get_by_test_id("page-lit")).to_contain_text("Katze")
    expect(page.get_by_test_id("top-weight").first).to_have_text(f"{float(weights[3, heaviest]):.4f}")
    lit = page.locator(f"#lit-{heaviest}")
    assert float(lit.get_attribute("data-weight")) == pytest.approx(float(weights[3, heaviest]), rel=1e-5)
    lit.click()
    page.wait_for_url(re.compile(f"key={heaviest}.*look=queries"))
    expect(page.get_by_test_id("page")).to_contain_text("Katze")
    expect(page.get_by_test_id("page-lit")).to_contain_text("alert(1)")
    most = int(weights[:, heaviest].argmax())
    expect(page.get_by_test_id("top-weight").first).to_have_text(f"{float(weights[most, heaviest]):.4f}")
    page.get_by_test_id("arcs-lines").click()
    drawn = page.get_by_test_id("lines")
    expect(drawn).to_contain_text("Katze")
    expect(drawn).to_contain_text("&amp;")


def test_another_stack_brings_its_own_tokens(page: Page, address: str):
    page.goto(f"{address}/#/text?query=3")
    expect(page.get_by_test_id("page")).to_contain_text("alert(1)")
    page.get_by_label("Stack").select_option("encoder")
    expect(page.get_by_test_id("page")).to_contain_text("Katze")
    expect(page.get_by_test_id("page")).not_to_contain_text("alert(1)")


@pytest.mark.parametrize("view", ["map", "text"])
def test_an_exported_page_has_both_texts(page: Page, offline: Page, address: str, tmp_path: Path, view: str):
    page.goto(f"{address}/#/{view}?role=cross&layer=0&head=1&query=3&key=42")
    if view == "map":
        map_is_drawn(page)
    else:
        expect(page.get_by_test_id("top-weight").first).to_be_visible()
    offline.goto(export(page, "html", tmp_path).as_uri())
    if view == "map":
        expect(offline.get_by_test_id("readout")).to_contain_text("Katze")
    else:
        expect(offline.get_by_test_id("page-lit")).to_contain_text("Katze")
    drawing = export(page, "svg", tmp_path).read_text()
    assert "Katze" in drawing
    assert "&lt;script" in drawing
