"""The map in a browser: from the overview down to one weight, and every weight the one Python computes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator

import pytest
import torch
from playwright.sync_api import BrowserContext, Page, expect

from regard.models import Recording
from viewer.e2e.conftest import LAPTOP, _open
from viewer.e2e.reading import drag, pixel, weight_shown, zoom_to
from viewer.e2e.waiting import eventually, map_is_drawn, until

READ_ALL = """([queries, keys]) => {
  const values = new Float32Array(queries * keys);
  for (let i = 0; i < values.length; i++) {
    values[i] = window.regard.map.value(Math.floor(i / keys), i % keys) ?? NaN;
  }
  let text = '';
  for (const byte of new Uint8Array(values.buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}"""


def test_the_first_page_shows_the_map_of_the_bundled_story(page: Page, server: str):
    page.goto(server)
    map_is_drawn(page)
    expect(page.get_by_test_id("tab-map")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_test_id("legend")).to_be_visible()
    camera = page.evaluate("window.regard.map.camera()")
    assert camera["x"] == pytest.approx(1023, abs=2)  # all 2,046 tokens, in the middle
    assert pixel(page, 1800, 1700)[3] == 255  # within the window of the first layer
    assert pixel(page, 300, 1800)[3] == 0  # forbidden cells are not painted


def test_a_map_that_is_pulled_goes_all_the_way(page: Page, server: str):
    """Without animations it comes to rest at every step, and is not called back there when it has gone on."""
    page.goto(f"{server}/#/map?layer=5&head=0&x=500.5&y=600.5&z=4")
    map_is_drawn(page)
    for _ in range(3):
        before = page.evaluate("window.regard.map.camera()")
        drag(page, round(before["y"]), round(before["x"]), down=-12, right=-16)
        until(page, f"Math.abs(window.regard.map.camera().x - {before['x'] + 16}) < 0.1")
        page.wait_for_timeout(100)  # time in which it could be called back
        after = page.evaluate("window.regard.map.camera()")
        assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((16, 12), abs=0.1)


def test_zooming_from_the_overview_to_one_cell_reads_the_weight_that_python_computes(
    page: Page, server: str, story: Recording
):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    query, key = 600, 539
    spot = zoom_to(page, query, key)
    map_is_drawn(page)
    page.mouse.click(spot["x"], spot["y"])
    page.wait_for_url(re.compile(f"query={query}&key={key}"))
    wanted = float(story.maps[5][0, 0, query, key])
    assert weight_shown(page) == pytest.approx(wanted, rel=1e-5)
    assert page.evaluate(f"window.regard.map.value({query}, {key})") == pytest.approx(wanted, rel=1e-5)
    expect(page.get_by_test_id("cell-distance")).to_have_text("61")
    row = story.maps[5][0, 0, query]
    expect(page.get_by_test_id("cell-rank")).to_have_text(str(int((row > row[key]).sum()) + 1))


@pytest.mark.parametrize("layer", [0, 1])
def test_every_cell_on_the_page_equals_the_dense_weights(
    page: Page, small_server: str, small: Recording, layer: int
):
    page.goto(f"{small_server}/#/map?layer={layer}&head=3")
    map_is_drawn(page)
    # One cell a pixel or more, so that level 0 is what is drawn.
    page.evaluate("window.regard.map.center(150, 150, 2)")
    map_is_drawn(page)
    values = bytearray(base64.b64decode(page.evaluate(READ_ALL, [301, 301])))
    shown = torch.frombuffer(values, dtype=torch.float32).view(301, 301)
    torch.testing.assert_close(shown, small.maps[layer][0, 3], rtol=1e-6, atol=1e-9)


def test_a_heavier_cell_is_drawn_brighter_and_a_scale_change_asks_for_nothing(
    page: Page, server: str, story: Recording
):
    # In the middle of what is on the screen.
    row = story.maps[5][0, 0, 600, 530:590]
    heavy, light = 530 + int(row.argmax()), 530 + int(row.argmin())
    page.goto(f"{server}/#/map?layer=5&head=0&x=560&y=600&z=3.5")
    map_is_drawn(page)

    def brightness(key: int) -> float:
        r, g, b, _ = pixel(page, 600, key)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    assert brightness(heavy) > brightness(light)
    before, fetched = pixel(page, 600, heavy), page.evaluate("window.regard.map.tilesFetched()")
    page.get_by_test_id("palette").select_option("cividis")
    page.get_by_test_id("scale-linear").click()
    eventually(page, lambda: pixel(page, 600, heavy) != before)
    assert page.evaluate("window.regard.map.tilesFetched()") == fetched


def test_a_brushed_region_tells_its_share(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/map?layer=5&head=0&box=590-601_530-541")
    numbers = page.get_by_test_id("region-numbers")
    tile = story.maps[5][0, 0, 590:601, 530:541]
    expect(numbers).to_contain_text(f"{float(tile.max()):.4f}")
    expect(numbers).to_contain_text("121 of 121")
    page.get_by_test_id("brush").click()
    start = page.evaluate("window.regard.map.place(900, 300)")
    end = page.evaluate("window.regard.map.place(1200, 500)")
    page.mouse.move(start["x"], start["y"])
    page.mouse.down()
    page.mouse.move(end["x"], end["y"], steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"box=(89\d|90\d)-(119\d|120\d)_(29\d|30\d)-(49\d|50\d)"))


def test_two_heads_move_together(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0&beside=5.1")
    map_is_drawn(page)
    expect(page.locator(".pane")).to_have_count(2)
    page.evaluate("window.regard.map.center(700, 650, 20)")
    map_is_drawn(page)
    axes = page.locator(".axis-left")
    eventually(page, lambda: len({axes.nth(i).evaluate("c => c.toDataURL()") for i in range(2)}) == 1)


def test_a_word_is_found_and_brought_to_the_middle(page: Page, server: str, story: Recording):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    page.get_by_test_id("jump").fill("badger")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("query="))
    query = int(re.search(r"query=(\d+)", page.url)[1])
    assert "badger".startswith(story.tokens[query].text.strip()) or "badger" in story.tokens[query].text
    until(page, f"Math.abs(window.regard.map.camera().y - {query}) < 2")


def test_tokens_that_look_like_html_stay_text(page: Page, small_server: str):
    opened = []
    page.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    page.goto(f"{small_server}/#/map?query=5&key=2&z=4")
    map_is_drawn(page)
    expect(page.get_by_test_id("readout")).to_contain_text("<script>alert(1)</script>")
    page.goto(f"{small_server}/#/text?query=5")
    expect(page.get_by_test_id("page")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("img[src=x]").count() == 0
    assert opened == []


def test_a_recording_that_is_not_there_is_said_and_the_page_stays_usable(page: Page, server: str):
    page.goto(f"{server}/#/map?rec=nowhere")
    expect(page.get_by_test_id("failure")).to_contain_text("nowhere")
    page.get_by_test_id("pick-recording").select_option(index=0)
    map_is_drawn(page)
    expect(page.get_by_test_id("failure")).to_have_count(0)


@pytest.fixture
def sharp(windows: Callable[..., BrowserContext]) -> Iterator[Page]:
    """A page on a screen with two pixels to one of the page, in either direction."""
    yield from _open(windows("sharp", viewport=LAPTOP, device_scale_factor=2))


def test_a_sharp_screen_is_drawn_at_half_its_pixels_while_the_map_moves(sharp: Page, small_server: str):
    sharp.goto(f"{small_server}/#/map?layer=0&head=0")
    map_is_drawn(sharp)
    sharp.evaluate(
        """() => {
          const canvas = document.querySelector('.osd canvas');
          window.ratios = [];
          const tick = () => {
            window.ratios.push(canvas.width / canvas.clientWidth);
            requestAnimationFrame(tick);
          };
          tick();
        }"""
    )
    drag(sharp, 150, 100, 20, 20)
    until(sharp, "window.ratios.includes(1) && window.ratios.at(-1) === 2")
    map_is_drawn(sharp)
