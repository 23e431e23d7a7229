"""When things go wrong under an open page, and when the page itself goes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from regard import Causal
from viewer.e2e.conftest import serve
from viewer.e2e.long import long_recording
from viewer.e2e.waiting import map_is_drawn
from viewer.samples import layer, recording, saved
from viewer.waiting import finished


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Two recordings, one of them long enough to need an overview that takes its time."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    saved(recording(layer(0, 65, 65, Causal())), folder / "a.regard")
    saved(long_recording(40_003, 8_191, 8_193), folder / "b.regard")
    return folder


@pytest.fixture
def address(shelf: Path, tmp_path: Path) -> Iterator[str]:
    yield from serve(tmp_path / "cache", str(shelf))


def test_a_recording_that_goes_is_said_and_another_can_be_opened(page: Page, address: str, shelf: Path):
    page.goto(address)
    map_is_drawn(page)
    expect(page.get_by_test_id("pick-recording")).to_contain_text("a.regard")
    shutil.rmtree(shelf / "a.regard")
    page.get_by_role("button", name="Head: next").click()
    expect(page.get_by_test_id("failure").first).to_contain_text("a.regard")
    page.get_by_role("button", name="Try again").first.click()
    expect(page.get_by_test_id("failure").first).to_contain_text("a.regard")
    page.get_by_test_id("pick-recording").select_option(label="b.regard")
    expect(page.get_by_test_id("failure")).to_have_count(0)
    expect(page.locator(".app-note")).to_contain_text("40,003 tokens")


def test_a_damaged_recording_is_marked_in_the_list_and_says_why(page: Page, address: str, shelf: Path):
    (shelf / "b.regard" / "manifest.json").write_text("{")
    page.goto(address)
    map_is_drawn(page)
    options = page.get_by_test_id("pick-recording")
    expect(options).to_contain_text("b.regard (damaged)")
    options.select_option(value="b.regard")
    expect(page.get_by_test_id("failure")).to_contain_text("b.regard cannot be opened: ")
    expect(page.get_by_test_id("failure")).to_contain_text("manifest.json")
    options.select_option(label="a.regard")
    expect(page.get_by_test_id("failure")).to_have_count(0)


def test_closing_the_page_ends_the_work_it_waited_for(browser: Browser, address: str):
    with browser.new_context() as context:
        page = context.new_page()
        with httpx.Client(base_url=address, timeout=None) as client:
            rows = client.get("/api/recordings").json()["recordings"]
        long = next(row["id"] for row in rows if row["name"] == "b.regard")
        with page.expect_response(lambda said: said.status == 503) as busy:
            page.goto(f"{address}/#/map?rec={long}")
        job = busy.value.json()["job"]
        expect(page.get_by_test_id("progress")).to_be_visible()
    with httpx.Client(base_url=address, timeout=None) as client:
        said = finished(client, job)
    assert said["state"] == "cancelled"
    assert said["done"] < said["total"]
