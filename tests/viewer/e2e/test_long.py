"""A hundred thousand tokens: the overview of ten billion cells, few of them visible, and any one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from regard.models import Recording
from viewer.e2e.conftest import serve
from viewer.e2e.long import long_recording
from viewer.e2e.reading import pixel, weight_shown, zoom_to
from viewer.e2e.waiting import map_is_drawn
from viewer.samples import saved

TOKENS = 100_003
# A band along the diagonal and one at the left edge: an overview of them all would take most of a minute.
SINKS, WINDOW = 3_003, 3_001

# A coarse tile comes a second after it was asked for, as on a busy machine.
LATE = """
const ask = window.fetch;
window.fetch = async (...request) => {
  const answer = await ask(...request);
  const url = String(request[0]?.url ?? request[0]);
  if (/level=[5-9]/.test(url)) await new Promise((end) => setTimeout(end, 1000));
  return answer;
};
"""


@pytest.fixture
def long() -> Recording:
    return long_recording(TOKENS, SINKS, WINDOW)


@pytest.fixture
def long_server(long: Recording, tmp_path: Path) -> Iterator[str]:
    yield from serve(tmp_path / "cache", str(saved(long, tmp_path / "long.regard")))


# One test: the recording takes longer to make than to look at.
@pytest.mark.long
def test_a_hundred_thousand_tokens_from_the_overview_to_one_weight(
    page: Page, long_server: str, long: Recording
):
    query, key = 70_123, 1_987
    page.add_init_script(LATE)
    waiting = page.get_by_test_id("view-map").get_by_test_id("progress")

    # The overview is made on the first look. Single cells are there at once.
    page.goto(f"{long_server}/#/map?layer=0&head=2&x={key}.5&y={query}.5&z=5&query={query}&key={key}")
    expect(waiting).to_contain_text("Making the overview")
    map_is_drawn(page)
    assert weight_shown(page) == pytest.approx(float(long.maps[0][0, 2, query, key]), rel=1e-4)
    assert pixel(page, query - 3, key - 3)[3] == 255
    page.get_by_test_id("view-map").get_by_test_id("cancel").click()
    expect(page.get_by_test_id("failure")).to_contain_text("cancelled")

    page.goto(f"{long_server}/#/map?layer=0&head=5")
    expect(page.get_by_test_id("failure")).to_have_count(0)
    expect(waiting).to_be_visible()
    expect(waiting).to_have_count(0)
    map_is_drawn(page)
    camera = page.evaluate("window.regard.map.camera()")
    assert camera["x"] == pytest.approx(TOKENS / 2, abs=2)
    assert camera["scale"] < 0.01
    nothing = pixel(page, 80_000, 30_000)
    assert nothing[3] == 255
    assert pixel(page, 80_000, 2_000) != nothing != pixel(page, 80_000, 78_000)
    assert pixel(page, 30_000, 80_000)[3] == 0  # what comes later is not painted

    spot = zoom_to(page, query, key)
    map_is_drawn(page)
    page.mouse.click(spot["x"], spot["y"])
    page.wait_for_url(re.compile(f"query={query}&key={key}"))
    wanted = float(long.maps[0][0, 5, query, key])
    assert weight_shown(page) == pytest.approx(wanted, rel=1e-4)
    assert page.evaluate(f"window.regard.map.value({query}, {key})") == pytest.approx(wanted, rel=1e-4)
