"""Every view as a file, of a text short enough for the model to run again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from viewer.e2e.files import colours, export
from viewer.e2e.waiting import map_is_drawn, until


@dataclass(frozen=True)
class View:
    """An address, and where the numbers are that an exported page must tell as well."""

    name: str
    options: str
    numbers: tuple[str, ...]

    def open(self, page: Page, address: str) -> None:
        page.goto(address)
        if self.name == "matter" and address.startswith("http"):
            page.get_by_test_id("block").click()
        for testid in self.numbers:
            expect(page.get_by_test_id(testid).first).to_contain_text(re.compile(r"\d"))
        if self.name == "map":
            map_is_drawn(page)
            # Tokens have numbers at once; weight, score and rank are dots until they have arrived.
            expect(page.get_by_test_id("readout")).not_to_contain_text("…")
        if self.name == "atlas":
            details = page.get_by_test_id("atlas-details")
            expect(details).not_to_contain_text("Computing")
            expect(details).to_contain_text("Weight on it, along the text")  # evidence is asked for by itself

    def read(self, page: Page) -> list[str]:
        found = [text for testid in self.numbers for text in page.get_by_test_id(testid).all_inner_texts()]
        # Not in an exported page: the way to another view, and rows and kinds that were not looked at.
        found = [re.sub(r"Evidence for.*?Looks", "Looks", text, flags=re.DOTALL) for text in found]
        found = [re.sub(r"\s+", " ", re.sub(r"Open in Map|Copy row \(CSV\)", "", text)) for text in found]
        return [text.replace(" Map Text", "").strip() for text in found]


VIEWS = [
    View("map", "layer=5&head=0&query=40&key=30", ("readout",)),
    View("text", "layer=5&head=0&query=40", ("top-weight", "summary")),
    View("atlas", "layer=5&head=0", ("atlas-count", "atlas-details")),
    View("steps", "layer=5&head=0&query=40&step=weights", ("key-table", "what-if-bars", "spread")),
    View("matter", "layer=5&head=0&query=40&key=30", ("verdict", "before-after", "heaviest", "history")),
]
every_view = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
# In test_export.py a map and a text of other recordings are opened from disk.
AGAIN = ("map", "text")
from_disk = pytest.mark.parametrize(
    "view",
    [pytest.param(view, marks=[pytest.mark.slow] * (view.name in AGAIN)) for view in VIEWS],
    ids=lambda view: view.name,
)


@from_disk
def test_a_page_opened_from_disk_without_a_network_tells_the_same_numbers(
    page: Page, offline: Page, server: str, short: str, view: View, tmp_path: Path
):
    view.open(page, f"{server}/#/{view.name}?rec={short}&{view.options}")
    wanted = view.read(page)
    assert any(re.search(r"\d", text) for text in wanted)
    file = export(page, "html", tmp_path)
    view.open(offline, file.as_uri())
    assert view.read(offline) == wanted
    expect(offline.get_by_test_id("failure")).to_have_count(0)
    expect(offline.get_by_text("This is an exported page: it holds")).to_have_count(0)
    if view.name == "atlas":  # every head has its picture, also those that were never scrolled to
        offline.get_by_test_id("head-8-5").scroll_into_view_if_needed()
        until(offline, "document.querySelectorAll('.thumb[data-state=ready]').length === 54")


@pytest.mark.share(2)
@every_view
def test_a_picture_and_a_drawing_show_the_view(
    page: Page, offline: Page, server: str, short: str, view: View, tmp_path: Path
):
    view.open(page, f"{server}/#/{view.name}?rec={short}&{view.options}")
    picture = export(page, "png", tmp_path)
    offline.goto(export(page, "svg", tmp_path).as_uri())
    drawing = tmp_path / "drawing.png"
    offline.screenshot(path=drawing)
    for file in (picture, drawing):
        found = colours(file)
        assert len(found) > 8, f"{file.name} has {len(found)} colours"
        assert found[0] < 0.97, f"{file.name} is blank"


def test_a_step_exported_while_it_moves_shows_its_numbers(moving: Page, server: str, tmp_path: Path):
    moving.goto(f"{server}/#/steps?example=cat&step=masked")
    moving.get_by_test_id("key-table").wait_for()
    moving.get_by_test_id("export").locator("summary").click()
    with moving.expect_download() as caught:
        moving.evaluate(
            """() => {
              document.querySelector('[data-testid=next]').click();
              requestAnimationFrame(() => document.querySelector('[data-testid=export-png]').click());
            }"""
        )
    caught.value.save_as(tmp_path / "early.png")
    table, view = (moving.locator(where).bounding_box() for where in ("[data-testid=key-table]", "#view"))
    left, top = table["x"] - view["x"], table["y"] - view["y"]
    place = (left, top, left + table["width"], top + table["height"])
    with Image.open(tmp_path / "early.png") as picture:
        drawn = picture.crop(tuple(round(2 * edge) for edge in place)).convert("L")
    darkest, lightest = drawn.getextrema()
    assert (darkest < 60, lightest > 200) == (True, True), "the table is faint or not there"


def test_an_atlas_pictured_has_the_heads_below_the_edge_of_the_screen(
    phone: Page, server: str, short: str, tmp_path: Path
):
    phone.goto(f"{server}/#/atlas?rec={short}")
    phone.get_by_test_id("atlas-matrix").wait_for()
    unseen = "document.querySelectorAll('.thumb[data-state=waiting]').length"
    assert phone.evaluate(unseen) > 0
    export(phone, "png", tmp_path)
    assert phone.evaluate(unseen) == 0
