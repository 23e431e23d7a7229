"""A view as a file: a picture, a drawing, and a page that needs no server."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from regard.models import Recording
from viewer.e2e.files import export
from viewer.e2e.waiting import map_is_drawn

MAP = "#/map?layer=5&head=0&x=560&y=600&z=4&query=600&key=570"


def test_a_map_opened_from_disk_reads_the_same_weights(
    page: Page, offline: Page, server: str, story: Recording, tmp_path: Path
):
    page.goto(f"{server}/{MAP}")
    map_is_drawn(page)
    file = export(page, "html", tmp_path)
    text = file.read_text()
    assert not re.search(r"(src|href)=\"?https?:", text.split("<script", 1)[0])
    assert "Content-Security-Policy\" content=\"default-src 'none';" in text
    offline.goto(file.as_uri())
    map_is_drawn(offline)
    weight = offline.get_by_test_id("cell-weight")
    expect(weight).to_have_attribute("data-value", re.compile("."))
    assert float(weight.get_attribute("data-value")) == pytest.approx(
        float(story.maps[5][0, 0, 600, 570]), rel=1e-5
    )
    # A cell that was not requested before comes from the exported tile.
    spot = offline.evaluate("window.regard.map.place(595, 565)")
    offline.mouse.click(spot["x"], spot["y"])
    offline.wait_for_url(re.compile("query=595&key=565"))
    offline.mouse.move(5, 5)
    expect(offline.get_by_test_id("readout")).to_contain_text("595")
    expect(offline.get_by_test_id("readout")).to_have_attribute("aria-busy", "false")
    wanted = float(story.maps[5][0, 0, 595, 565])
    assert float(weight.get_attribute("data-value")) == pytest.approx(wanted, rel=1e-5)


def test_a_text_opened_from_disk_lights_up(page: Page, offline: Page, small_server: str, tmp_path: Path):
    page.goto(f"{small_server}/#/text?layer=1&head=2&query=200")
    expect(page.get_by_test_id("top-weight").first).to_be_visible()
    heaviest = page.get_by_test_id("top-weight").first.inner_text()
    file = export(page, "html", tmp_path)
    offline.goto(file.as_uri())
    expect(offline.get_by_test_id("top-weight").first).to_have_text(heaviest)
    offline.locator("#token-201").click()
    expect(offline.get_by_test_id("summary")).to_contain_text("201")
    expect(offline.get_by_test_id("summary")).not_to_contain_text("exported page")


def test_a_map_is_a_png_of_twice_its_size(page: Page, server: str, tmp_path: Path):
    page.goto(f"{server}/{MAP}")
    map_is_drawn(page)
    data = export(page, "png", tmp_path).read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    stage = page.locator(".stage").bounding_box()
    assert int.from_bytes(data[16:20], "big") > 2 * stage["width"]


def test_an_exported_map_offers_what_works_offline_and_every_cell_is_exact(
    page: Page, offline: Page, server: str, story: Recording, tmp_path: Path
):
    page.goto(f"{server}/#/map?layer=5&head=0")  # all of it, so that no exact tile is on screen
    map_is_drawn(page)
    offline.goto(export(page, "html", tmp_path).as_uri())
    map_is_drawn(offline)
    expect(offline.get_by_test_id("exported")).to_contain_text("layer 5, head 0")
    for testid in ("pick-recording", "pick-head", "compare", "export-html"):
        expect(offline.get_by_test_id(testid)).to_have_count(0)
    spot = offline.evaluate("window.regard.map.place(1501, 901)")
    offline.mouse.move(spot["x"], spot["y"])
    most = offline.get_by_test_id("block-max")
    expect(most).to_have_attribute("data-value", re.compile("."))
    tile = story.maps[5][0, 0, 1500:1504, 900:904]
    assert float(most.get_attribute("data-value")) == pytest.approx(float(tile.max()), rel=1e-5)
    offline.get_by_test_id("blocks-mean").click()
    offline.evaluate("window.regard.map.center(1800, 300, 24)")
    map_is_drawn(offline)
    spot = offline.evaluate("window.regard.map.place(1800, 300)")
    offline.mouse.click(spot["x"], spot["y"])
    offline.wait_for_url(re.compile("query=1800&key=300"))
    expect(offline.get_by_test_id("readout")).to_have_attribute("aria-busy", "false")
    weight = float(offline.get_by_test_id("cell-weight").get_attribute("data-value"))
    assert weight == pytest.approx(float(story.maps[5][0, 0, 1800, 300]), rel=1e-5)
    expect(offline.get_by_test_id("failure")).to_have_count(0)


def test_a_drawing_of_large_cells_has_their_weights(
    page: Page, server: str, story: Recording, tmp_path: Path
):
    row = story.maps[5][0, 0, 600]
    key = int(row.argmax())
    page.goto(f"{server}/#/map?layer=5&head=0&x={key}.5&y=600.5&z=6")
    map_is_drawn(page)
    root = ElementTree.parse(export(page, "svg", tmp_path)).getroot()
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {f"{float(row[key]) + shift:.4f}" for shift in (-1e-6, 0, 1e-6)} & set(words)


CLIPPED = """() => {
  const { width, height } = document.documentElement.viewBox.baseVal;
  const edge = document.documentElement.getBoundingClientRect();
  return [...document.querySelectorAll('text')].filter((text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    return left < edge.left - 1 || right > edge.left + width + 1
      || top < edge.top - 1 || bottom > edge.top + height + 1;
  }).map((text) => text.textContent);
}"""


@pytest.mark.parametrize(
    ("of", "place"),
    [
        ("server", "layer=5&head=0"),
        ("server", "layer=5&head=0&x=280&y=300&z=4.5"),
        ("server", "layer=5&head=0&x=2040&y=2040&z=4"),
        ("small_server", "layer=0&head=0"),
    ],
)
def test_no_label_is_cut_off_by_the_edge_of_a_drawing(
    request: pytest.FixtureRequest, page: Page, offline: Page, tmp_path: Path, of: str, place: str
):
    page.goto(f"{request.getfixturevalue(of)}/#/map?{place}")
    map_is_drawn(page)
    offline.goto(export(page, "svg", tmp_path).as_uri())
    assert offline.evaluate(CLIPPED) == []


@pytest.mark.parametrize("view", ["map", "text"])
def test_a_drawing_is_well_formed_and_its_tokens_are_text(
    page: Page, small_server: str, tmp_path: Path, view: str
):
    page.goto(f"{small_server}/#/{view}?query=20&key=15&x=15&y=20&z=4.5")
    if view == "map":
        map_is_drawn(page)
    else:
        expect(page.get_by_test_id("top-weight").first).to_be_visible()
    root = ElementTree.parse(export(page, "svg", tmp_path)).getroot()
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(word.startswith("<script>") or word.startswith("<script") for word in words)
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
