"""When things go wrong under an open page, and when the page itself goes."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from regard import Causal
from regard.models.manifest import COMPLETE, PARTIAL, read_manifest, write_manifest
from regard.viewer import Settings
from regard.viewer.heads import Head
from regard.viewer.pyramid import Progress, Pyramid
from regard.viewer.session import Session
from viewer.e2e.conftest import served_here
from viewer.e2e.long import long_recording
from viewer.e2e.waiting import PATIENCE, map_is_drawn
from viewer.samples import layer, recording, saved
from viewer.serving import served
from viewer.waiting import ended

STRANGE = [
    " مرحبا",
    " שלום",
    "\u202eevil\u202c",
    "\u200b",
    " e\u0301\u0302\u0303",
    " 👩\u200d👧",
    " <b>",
    "x" * 300,
]
NO_WEBGL = """
const plain = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...options) {
  return /webgl/.test(kind) ? null : plain.call(this, kind, ...options);
};
"""


class _Strange:
    name_or_path = "strange"
    is_fast = False

    def decode(self, ids: list[int]) -> str:
        return "".join(STRANGE[i] for i in ids)


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
    yield from served_here(tmp_path / "cache", shelf)


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


@pytest.mark.long
def test_a_damaged_recording_is_marked_in_the_list_and_says_why(page: Page, address: str, shelf: Path):
    (shelf / "b.regard" / "manifest.json").write_text("{")
    page.goto(address)
    map_is_drawn(page)
    options = page.get_by_test_id("pick-recording")
    expect(options).to_contain_text("b.regard (cannot be opened)")
    options.select_option(value="b.regard")
    expect(page.get_by_test_id("failure")).to_contain_text("b.regard cannot be opened: ")
    expect(page.get_by_test_id("failure")).to_contain_text("manifest.json")
    options.select_option(label="a.regard")
    expect(page.get_by_test_id("failure")).to_have_count(0)


@pytest.mark.parametrize("view", ["map", "text", "token"])
def test_a_server_that_goes_away_and_comes_back_is_asked_again(page: Page, small_server: str, view: str):
    number = {"map": "cell-weight", "text": "top-weight", "token": "token-weight"}[view]
    page.goto(f"{small_server}/#/{view}?layer=0&head=0&query=40&key=30")
    shown = page.get_by_test_id(number).first
    expect(shown).to_have_text(re.compile("[0-9]"))
    before = shown.inner_text()
    page.route("**/api/**", lambda route: route.abort())
    # Another question, which fails, and then the first one again.
    page.goto(f"{small_server}/#/{view}?layer=0&head=1&query=41&key=31")
    expect(page.get_by_text("The server does not answer").first).to_be_visible()
    expect(page.get_by_test_id("away")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")
    expect(page.get_by_test_id("away")).to_have_count(0)
    expect(page.get_by_test_id("failure")).to_have_count(0)
    expect(shown).to_have_text(re.compile("[0-9]"))
    page.goto(f"{small_server}/#/{view}?layer=0&head=0&query=40&key=30")
    expect(shown).to_have_text(before)


@pytest.mark.long
def test_a_page_without_webgl_and_with_invisible_tokens(page: Page, tmp_path: Path):
    """One server for texts at their limits: one token; letters that join, turn round or do not show."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    saved(recording(layer(0, 1, 1, Causal())), folder / "one.regard")
    strange = recording(layer(0, 30, 30, Causal()), text=False)
    strange.token_ids["decoder"] = torch.arange(30)[None] % len(STRANGE)
    strange.attach(_Strange())
    saved(strange, folder / "strange.regard")
    newer = saved(recording(layer(0, 5, 5, Causal())), folder / "newer.regard") / "manifest.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "format": 99, "regard": "9.9"}))
    page.add_init_script(NO_WEBGL)
    for address in served_here(tmp_path / "cache", folder):
        for view in ("text", "token", "atlas", "steps", "map"):
            page.goto(f"{address}/#/{view}?rec={_id_of(address, 'one')}")
            expect(page.get_by_test_id(f"view-{view}")).to_be_visible()
            expect(page.get_by_test_id("failure")).to_have_count(0)
        map_is_drawn(page)
        assert page.evaluate("window.regard.map.value(0, 0)") == pytest.approx(1)
        expect(page.locator(".app-note")).to_contain_text("1 token ")
        page.goto(f"{address}/#/map?rec={_id_of(address, 'strange')}&query=29&key=2")
        map_is_drawn(page)
        readout = page.get_by_test_id("readout")
        expect(readout.locator(".token.key .token-text")).to_have_text("⟨202E⟩evil⟨202C⟩")
        page.goto(f"{address}/#/map?rec={_id_of(address, 'strange')}&query=29&key=3")
        expect(readout.locator(".token.key .token-text")).to_have_text("⟨200B⟩")
        page.goto(f"{address}/#/text?rec={_id_of(address, 'strange')}&query=29")
        expect(page.get_by_test_id("page")).to_contain_text("مرحبا")
        overflow = (
            "() => document.querySelector('aside').scrollWidth - document.querySelector('aside').clientWidth"
        )
        assert page.evaluate(overflow) <= 0
        page.get_by_test_id("pick-recording").select_option(value="newer.regard")
        expect(page.get_by_test_id("failure")).to_contain_text("written by regard 9.9")
        expect(page.get_by_test_id("failure")).to_contain_text("Upgrade regard.")


@pytest.mark.long
def test_an_unfinished_recording_a_newer_one_and_one_without_its_model(page: Page, tmp_path: Path):
    """What can be opened opens and says what it lacks; what cannot says why; the others are as ever."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    two = [layer(number, 65, 65, Causal()) for number in (0, 1)]
    saved(recording(two[0]), folder / "a.regard")
    _cut_short(saved(recording(*two), folder / "half.regard"))
    _as_written_by("9.9", saved(recording(two[0]), folder / "newer.regard"))
    for address in served_here(tmp_path / "cache", folder):
        page.goto(address)
        map_is_drawn(page)
        options = page.get_by_test_id("pick-recording")
        expect(options.locator("option")).to_have_text(
            ["a.regard", "half.regard", "⚠ newer.regard (cannot be opened)"]
        )
        expect(page.get_by_test_id("unfinished")).to_have_count(0)

        options.select_option(label="half.regard")
        expect(page.get_by_test_id("unfinished")).to_contain_text("ended after 1 layer")
        map_is_drawn(page)
        assert page.evaluate("window.regard.map.value(0, 0)") == pytest.approx(1)
        expect(page.get_by_test_id("failure")).to_have_count(0)

        options.select_option(value="newer.regard")
        expect(page.get_by_test_id("failure")).to_contain_text("written by regard 9.9")
        expect(page.get_by_test_id("unfinished")).to_have_count(0)

        # The model that these say they are of is on no machine.
        options.select_option(label="a.regard")
        expect(page.get_by_test_id("failure")).to_have_count(0)
        page.get_by_test_id("tab-matter").click()
        expect(page.get_by_test_id("matter-not-live")).to_contain_text("without its model, “random”")
        for view in ("text", "token", "steps", "map"):
            page.get_by_test_id(f"tab-{view}").click()
            expect(page.get_by_test_id(f"view-{view}")).to_be_visible()
            expect(page.get_by_test_id("failure")).to_have_count(0)
        map_is_drawn(page)


def _cut_short(path: Path) -> None:
    """As the writer leaves it when it is killed after the first layer."""
    about = read_manifest(path / COMPLETE)
    write_manifest(path / PARTIAL, {**about, "complete": False, "layers": about["layers"][:1]})
    (path / COMPLETE).unlink()


def _as_written_by(version: str, path: Path) -> None:
    manifest = path / COMPLETE
    about = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**about, "format": 99, "regard": version}))


def _id_of(address: str, name: str) -> str:
    listed = httpx.get(f"{address}/api/recordings", timeout=None).json()["recordings"]
    return next(one["id"] for one in listed if one["name"] == f"{name}.regard")


@pytest.fixture
def endless(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Session, str]]:
    """A server whose overviews are never done, so that no page can be slower than they are."""

    def never_done(pyramid: Pyramid, head: Head, progress: Progress) -> None:
        while True:
            progress(1, pyramid.steps)
            time.sleep(0.01)

    monkeypatch.setattr(Pyramid, "make", never_done)
    session = Session(Settings(cache=tmp_path / "cache", recordings=(shelf,)))
    with served(session) as address:
        yield session, address


def test_closing_the_page_ends_the_work_it_waited_for(browser: Browser, endless: tuple[Session, str]):
    session, address = endless
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/#/map?rec={_id_of(address, 'b')}")
        expect(page.get_by_test_id("view-map").get_by_test_id("progress")).to_be_visible()
        (job,) = session.jobs.live
    assert ended(job).state == "cancelled"
    assert job.abandoned
