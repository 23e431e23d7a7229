"""Two recordings beside each other in a browser: the differences are those of the weights."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from viewer.e2e.files import export
from viewer.e2e.waiting import eventually
from viewer.e2e.working import TEXT, done

CHANGED = TEXT.replace("young dog went", "young fox went")


@pytest.fixture(scope="module")
def pair(server: str, short: str) -> Iterator[tuple[httpx.Client, str, str]]:
    with httpx.Client(base_url=server, timeout=None) as client:
        job = client.post("/api/jobs", json={"kind": "record", "text": CHANGED}).json()["id"]
        yield client, short, done(client, job)["result"]["recording"]


def test_two_prompts_are_aligned_and_a_difference_is_that_of_the_weights(page: Page, server, pair):
    client, first, second = pair
    page.goto(f"{server}/#/compare?rec={first}&layer=6&head=1")
    page.get_by_test_id("compare-with").select_option(second)
    expect(page.get_by_test_id("compare-texts")).to_contain_text("dog")
    expect(page.get_by_test_id("compare-texts")).to_contain_text("fox")
    path = f"/api/recordings/{first}/stacks/decoder/compare/{second}"
    apart = client.get(f"{path}/heads").json()["distance"]
    expect(page.get_by_test_id("cell-6-3")).to_contain_text(f"{apart[6][3]:.2f}")
    page.get_by_test_id("cell-6-3").click()
    page.wait_for_url(re.compile("layer=6&head=3"))
    picture = page.get_by_test_id("difference")
    expect(picture).to_have_attribute("aria-busy", "false")
    picture.focus()
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    said = page.get_by_test_id("difference-said")
    eventually(page, lambda: len(re.findall(r"\d\.\d{4}|\d·10", said.inner_text())) >= 2)
    run = client.get(path).json()["keys"]
    at = [[r[side] + i for r in run for i in range(r["length"])] for side in ("first", "second")]
    cells = [
        client.get(
            f"/api/recordings/{rec}/stacks/decoder/layers/6/heads/3/cell?query={p[12]}&key={p[1]}"
        ).json()["weight"]
        for rec, p in zip((first, second), at, strict=True)
    ]
    shown = float(said.locator("[data-value]").get_attribute("data-value") or "nan")
    assert shown == pytest.approx(cells[0] - cells[1], abs=1e-6)


def test_atlases_are_compared_head_by_head_and_the_page_opens_from_disk(
    page: Page, offline: Page, server, pair, tmp_path
):
    _, first, second = pair
    page.goto(f"{server}/#/compare?rec={first}&with={second}&layer=6&head=3")
    page.get_by_test_id("compare-atlases").click()
    moved = page.get_by_test_id("moved").locator("tbody tr")
    expect(moved).to_have_count(8)
    page.get_by_test_id("compare-by").select_option("kind:induction")
    wanted = moved.all_inner_texts()
    expect(page.get_by_test_id("difference")).to_have_attribute("aria-busy", "false")
    offline.goto(export(page, "html", tmp_path).as_uri())
    expect(offline.get_by_test_id("compare-texts")).to_contain_text("fox")
    expect(offline.get_by_test_id("difference")).to_have_attribute("aria-busy", "false")
    expect(offline.get_by_test_id("moved").locator("tbody tr")).to_have_count(8)
    assert offline.get_by_test_id("moved").locator("tbody tr").all_inner_texts() == wanted


def test_a_recording_beside_itself_does_not_differ(page: Page, server, pair):
    _, first, _ = pair
    page.goto(f"{server}/#/compare?rec={first}&with={first}")
    expect(page.get_by_test_id("head-grid").get_by_role("gridcell").first).to_have_text("0.00")
    expect(page.get_by_test_id("compare-texts")).to_contain_text("0 of")
