"""Recordings as files, in a browser: named, kept, saved, opened again; and the work that is under way."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from regard import Causal
from viewer.e2e.conftest import served_here
from viewer.e2e.reading import weight_shown
from viewer.e2e.waiting import map_is_drawn
from viewer.samples import layer, recording, saved

CELL = "layer=0&head=1&query=40&key=30"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("files")
    saved(recording(layer(0, 65, 65, Causal())), folder / "shelf" / "one.regard")
    yield from served_here(folder / "cache", folder / "shelf")


def menu(page: Page) -> None:
    page.get_by_test_id("recordings").locator("summary").click()


def open_at(page: Page, address: str) -> float:
    page.goto(f"{address}/#/map?{CELL}")
    map_is_drawn(page)
    return weight_shown(page)


def test_a_recording_is_saved_as_a_file_and_opened_from_it(page: Page, address: str, tmp_path: Path):
    weight = open_at(page, address)
    menu(page)
    with page.expect_download() as caught:
        page.get_by_test_id("save").click()
    file = tmp_path / caught.value.suggested_filename
    caught.value.save_as(file)
    assert file.name == "one.regard.zip"
    other = file.rename(tmp_path / "other.regard.zip")
    page.get_by_test_id("open-file").set_input_files(other)
    expect(page.get_by_test_id("pick-recording").locator("option")).to_have_text(["one.regard", "other"])
    expect(page.get_by_test_id("pick-recording")).to_have_value(re.compile("^other-"))
    page.goto(
        f"{page.url.split('#')[0]}#/map?rec={page.get_by_test_id('pick-recording').input_value()}&{CELL}"
    )
    map_is_drawn(page)
    assert weight_shown(page) == weight

    folder = tmp_path / "dragged.regard"
    with zipfile.ZipFile(other) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "one.regard").rename(folder)
    menu(page)
    page.get_by_test_id("open-folder").set_input_files(folder)
    expect(page.get_by_test_id("pick-recording").locator("option").last).to_have_text("dragged")


def test_a_file_that_is_no_recording_is_refused_in_a_sentence(page: Page, address: str, tmp_path: Path):
    open_at(page, address)
    bad = tmp_path / "bad.zip"
    bad.write_bytes(b"no zip at all")
    menu(page)
    page.get_by_test_id("open-file").set_input_files(bad)
    expect(page.get_by_test_id("recordings-said")).to_contain_text("cannot be unpacked")
    expect(page.get_by_test_id("view-map")).to_be_visible()
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(['hello'], 'notes.txt'));
          dispatchEvent(new DragEvent('dragover', { dataTransfer: data, cancelable: true }));
          dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true }));
        }"""
    )
    expect(page.get_by_test_id("recordings-said")).to_contain_text("There is no recording in it")


def test_a_recording_is_kept_under_a_name_and_removed(page: Page, address: str):
    open_at(page, address)
    menu(page)
    page.get_by_test_id("keep-name").fill("My <b>own</b>")
    page.get_by_test_id("keep").click()
    options = page.get_by_test_id("pick-recording").locator("option")
    expect(options.filter(has_text="My -b-own-b-")).to_have_count(1)
    menu(page)
    page.get_by_test_id("remove").click()
    expect(options.filter(has_text="My -b-own-b-")).to_have_count(0)
    map_is_drawn(page)


def test_work_is_listed_with_what_waits_and_ends_one_by_one(page: Page, address: str):
    with httpx.Client(base_url=address, timeout=None) as client:
        for wanted in (
            {"kind": "book"},
            {"kind": "record", "text": "first", "name": "first"},
            {"kind": "record", "text": "second", "name": "second"},
        ):
            client.post("/api/jobs", json=wanted).raise_for_status()
    open_at(page, address)
    work, jobs = page.get_by_test_id("work"), page.get_by_test_id("job")
    expect(work.locator("summary")).to_have_text("Work (3)")
    work.locator("summary").click()
    expect(jobs).to_contain_text(["Reading the book", "Recording: first", "Recording: second"])
    expect(jobs.nth(0)).to_have_attribute("data-state", "running")
    waiting = jobs.nth(1)
    expect(waiting).to_have_attribute("data-state", "waiting")
    expect(waiting).to_contain_text("waits for its turn")
    expect(waiting).to_contain_text(re.compile(r"for (under a second|\d+ (s|min))"))
    waiting.get_by_role("button", name="Cancel").click()
    expect(jobs).to_contain_text(["Reading the book", "Recording: second"])
    jobs.nth(1).get_by_role("button", name="Cancel").click()
    expect(jobs).to_contain_text(["Reading the book"])
    jobs.nth(0).get_by_role("button", name="Cancel").click()
    expect(work).to_be_hidden()
    expect(page.get_by_test_id("pick-recording").locator("option").filter(has_text="second")).to_have_count(0)
