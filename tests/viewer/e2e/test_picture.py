"""What was seen and heard, in a browser: weights over patches and frames, words with their times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from models.sensing import llava, picture, sound, whisper
from regard.atlas import word_times
from regard.models import Recording, record
from viewer.e2e.conftest import served_here
from viewer.e2e.files import export
from viewer.e2e.test_accessible import ALL, AXE, OF_COLOURS, RUN
from viewer.e2e.waiting import eventually, map_is_drawn

# Opacity of the patches, row by row.
HEAT = """() => {
  const sheet = document.querySelector('.picture-frame canvas');
  const { data } = sheet.getContext('2d').getImageData(0, 0, sheet.width, sheet.height);
  return Array.from({ length: data.length / 4 }, (_, i) => data[4 * i + 3]);
}"""


@pytest.fixture(scope="module")
def seen() -> Recording:
    """A text with an image of 4 × 4 patches, tokens 1 to 16."""
    return record(llava(), "a <image> is what ?", images=[picture()])


@pytest.fixture(scope="module")
def heard() -> Recording:
    return record(whisper(), "a red cat sat", audio=sound())


@pytest.fixture(scope="module")
def address(
    seen: Recording, heard: Recording, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The picture of each recording."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "shelf").mkdir()
    for name, made in (("seen", seen), ("heard", heard)):
        made.save(folder / "shelf" / f"{name}.regard")
    for server in served_here(folder / "cache", folder / "shelf"):
        listed = httpx.get(f"{server}/api/recordings").json()["recordings"]
        yield {Path(each["name"]).stem: f"{server}/#/picture?rec={each['id']}" for each in listed}


def place(page: Page, row: int, column: int) -> dict[str, float]:
    """The middle of a patch, in pixels of the picture on screen."""
    box = page.locator(".picture-frame").bounding_box()
    assert box is not None
    return {"x": box["width"] * (column + 0.5) / 4, "y": box["height"] * (row + 0.5) / 4}


def test_patches_are_coloured_by_the_weight_that_a_word_gives_them(
    page: Page, address: dict[str, str], seen: Recording
):
    page.goto(f"{address['seen']}&role=decoder&layer=1&head=2&query=18&scale=linear")
    weights = seen.maps[1][0, 2, 18, 1:17]
    expect(page.get_by_test_id("picture-share")).to_contain_text(f"{100 * float(weights.sum()):.1f} %")
    expect(page.get_by_test_id("picture-range")).to_contain_text(f"{float(weights.max()):.4f}")
    heat = page.evaluate(HEAT)
    assert max(range(16), key=heat.__getitem__) == int(weights.argmax())
    page.locator(".picture-frame").hover(position=place(page, 2, 1))
    expect(page.get_by_test_id("picture-said")).to_have_text(f"row 2, column 1: {float(weights[9]):.4f}")


def test_a_patch_is_asked_about_by_a_click_and_by_arrow_keys(
    page: Page, address: dict[str, str], seen: Recording
):
    page.goto(f"{address['seen']}&role=decoder&layer=1&head=2&query=18")
    frame = page.locator(".picture-frame")
    frame.click(position=place(page, 1, 2))
    page.wait_for_url(re.compile(r"query=7\b"))
    expect(page.locator(".picture-chosen")).to_contain_text("row 1, column 2")
    frame.press("ArrowDown")
    page.wait_for_url(re.compile(r"query=11\b"))
    page.get_by_test_id("direction-queries").click()
    mass = seen.maps[1][0, 2, :, 11]
    number = page.get_by_test_id("picture-heaviest").locator(".number").first
    expect(number).to_have_text(f"{float(mass.max()):.4f}")


def test_a_text_alone_has_no_tab_for_pictures(page: Page, small_server: str, address: dict[str, str]):
    page.goto(small_server)
    map_is_drawn(page)
    expect(page.get_by_test_id("tab-picture")).to_have_count(0)
    page.goto(f"{small_server}/#/picture")
    expect(page.get_by_test_id("view-picture")).to_contain_text("This recording has no picture")
    page.goto(address["seen"])
    expect(page.get_by_test_id("tab-picture")).to_be_visible()


def test_words_have_their_times_and_lead_to_where_the_model_listens(
    page: Page, address: dict[str, str], heard: Recording
):
    page.goto(f"{address['heard']}&role=decoder")
    page.get_by_role("button", name="Show the cross").click()
    words = page.get_by_test_id("picture-words").get_by_role("button")
    expect(words).to_have_text([f"{word.text} {word.start:.2f} s" for word in word_times(heard)])
    page.get_by_test_id("picture-words").get_by_role("button", name="cat").click()
    # Token 0 is an instruction; token 2, “red”, predicts “cat”.
    page.wait_for_url(re.compile(r"query=2\b"))
    share = float(heard.cross.maps[0][0, 0, 2, :100].sum())
    expect(page.get_by_test_id("picture-share")).to_contain_text(f"{100 * share:.1f} %")
    expect(page.locator(".picture-spoken.chosen")).to_have_count(1)


def test_the_axes_of_the_map_show_the_patches(page: Page, address: dict[str, str], tmp_path: Path):
    page.goto(f"{address['seen'].replace('/picture', '/map')}&role=decoder&layer=1&x=8&y=8&z=5")
    map_is_drawn(page)
    drawing = export(page, "svg", tmp_path).read_text()
    pieces = re.findall(r'<image href="data:image/png;base64,[^"]+"', drawing)
    assert len(set(pieces)) > 8  # the cells, and a piece of the image for each patch on screen
    assert ">1,2<" in drawing


def test_an_exported_page_has_the_picture(page: Page, offline: Page, address: dict[str, str], tmp_path: Path):
    page.goto(f"{address['seen']}&role=decoder&layer=1&head=2&query=18")
    expect(page.get_by_test_id("picture-share")).to_contain_text("%")
    wanted = page.get_by_test_id("picture-heaviest").locator(".number").all_inner_texts()
    offline.goto(export(page, "html", tmp_path).as_uri())
    expect(offline.get_by_test_id("picture-heaviest").locator(".number")).to_have_text(wanted)
    eventually(offline, lambda: offline.evaluate(HEAT) == page.evaluate(HEAT))
    loaded = "document.querySelector('.picture-frame img').naturalWidth"
    assert offline.evaluate(loaded) == 32


@pytest.mark.skipif(not AXE.is_file(), reason="NO AXE: run `make lint`, which installs it.")
@pytest.mark.parametrize("kind", ["page", "phone"])
def test_axe_finds_nothing(request: pytest.FixtureRequest, address: dict[str, str], kind: str):
    page: Page = request.getfixturevalue(kind)
    for name, options in (("seen", "role=decoder&query=18"), ("heard", "role=cross&query=2")):
        page.goto(f"{address[name]}&{options}")
        expect(page.get_by_test_id("picture-share")).to_contain_text("%")
        if name == "heard":
            page.get_by_test_id("picture-words").wait_for()
        page.evaluate(AXE.read_text())
        assert page.evaluate(RUN, ALL) == []
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(RUN, OF_COLOURS) == []
        page.emulate_media(color_scheme="light")
