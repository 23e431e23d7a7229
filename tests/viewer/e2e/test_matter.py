"""Does it matter? in a browser: block something, and read what the server computed."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server, timeout=None) as found:
        yield found


@pytest.fixture
def cut(client, short):
    """What the server says of a cut."""
    return lambda **wanted: client.post(f"/api/recordings/{short}/knockout", json=wanted).json()


def percent(cell: str) -> float:
    return float(cell.replace("<", "").replace("%", "").strip()) / 100


def test_blocking_a_head_shows_both_distributions(page: Page, server, short, cut):
    said = cut(heads=[[1, 2]], at=40)
    page.goto(f"{server}/#/matter?rec={short}&block=head&layer=1&head=2&query=40")
    page.get_by_test_id("block").click()
    verdict = page.get_by_test_id("verdict")
    expect(verdict).to_contain_text("Cutting layer 1, head 2 changed the next-token distribution by KL")
    top = max(said["before"], key=lambda one: one["probability"])
    row = page.get_by_test_id("before-after").locator("tbody tr").filter(has_text=top["token"].strip()).first
    shown = [percent(text) for text in row.locator(".bars-number span").all_inner_texts()]
    after = next(one["probability"] for one in said["after"] if one["id"] == top["id"])
    assert shown == pytest.approx([top["probability"], after], abs=0.0006)


def test_an_edge_is_told_with_its_weight_and_kept_in_the_history(page: Page, server, short):
    page.goto(f"{server}/#/matter?rec={short}&layer=0&head=0&query=40&key=39")
    page.get_by_test_id("block").click()
    expect(page.get_by_test_id("verdict")).to_contain_text("the edge 40 → 39 in layer 0, head 0 (weight")
    page.get_by_test_id("mode-token").click()
    page.get_by_test_id("block").click()
    expect(page.get_by_test_id("verdict")).to_contain_text("token 39 in every head")
    tried = page.get_by_test_id("history").locator("tbody tr")
    expect(tried).to_have_count(2)
    tried.last.get_by_role("button").click()
    expect(page.get_by_test_id("mode-edge")).to_have_attribute("aria-pressed", "true")


def test_the_heaviest_key_is_where_one_starts(page: Page, server, client, short):
    path = f"/api/recordings/{short}/stacks/decoder/layers/2/heads/1/row?query=50&k=1"
    heaviest = client.get(path).json()["top"][0]["key"]
    page.goto(f"{server}/#/matter?rec={short}&layer=2&head=1&query=50")
    chosen = page.get_by_test_id("choose-key").locator(".chooser-bar .token-index")
    expect(chosen).to_have_text(str(heaviest))


def test_several_things_are_blocked_at_once_and_heads_may_give_their_mean(page: Page, server, short, cut):
    page.goto(f"{server}/#/matter?rec={short}&layer=1&head=2&query=40&block=head")
    page.get_by_test_id("collect").click()
    field = page.get_by_test_id("cut")
    for text in ("layer 3", "tokens 5-7", "0.1: 40 → 39"):
        field.fill(text)
        field.press("Enter")
    expect(page.get_by_test_id("cuts").locator("li")).to_have_count(4)
    expect(page).to_have_url(re.compile(r"cuts=1\.2\+3\.\*\+t5-7\+0\.1q40k39"))
    for text, said in (("nonsense", "names nothing"), ("99.0", "There is no layer 99")):
        field.fill(text)
        field.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text(said)
    page.get_by_test_id("instead").select_option("mean")
    page.get_by_test_id("block").click()
    edges = [{"layer": 3}, {"layer": 0, "head": 1, "query": [40], "key": [39]}]
    said = cut(heads=[[1, 2]], edges=edges, keys=[5, 6, 7], at=40, instead="mean")
    expect(page.get_by_test_id("verdict")).to_contain_text("tokens 5–7")
    expect(page.get_by_test_id("verdict")).to_contain_text("replaced by its mean so far")
    row = page.get_by_test_id("before-after").locator("tbody tr").first
    top = max(said["before"] + said["after"], key=lambda one: one["probability"])
    expect(row).to_contain_text(top["token"].strip())
    page.get_by_role("button", name="Leave out tokens 5–7").click()
    expect(page.get_by_test_id("cuts").locator("li")).to_have_count(3)


def test_all_heads_of_a_kind_are_added_at_once(page: Page, server, client, short):
    heads = [
        head
        for head in client.get(f"/api/recordings/{short}/atlas").json()["heads"]
        for one in [head["findings"]["previous token"]]
        if one["score"] is not None and one["score"] >= one["bar"]
    ]
    assert heads
    page.goto(f"{server}/#/matter?rec={short}&query=40&block=several")
    expect(page.get_by_test_id("block")).to_be_disabled()
    page.get_by_test_id("kinds").click()
    page.get_by_test_id("pick-kind").select_option("previous token")
    expect(page.get_by_test_id("cuts").locator("li")).to_have_count(len(heads))
    expect(page.get_by_test_id("block")).to_be_enabled()


def test_each_heavy_key_by_itself_sets_weights_against_effects(page: Page, server, client, short):
    path = f"/api/recordings/{short}/stacks/decoder/layers/2/heads/1/row?query=50&k=12"
    top = client.get(path).json()["top"]
    page.goto(f"{server}/#/matter?rec={short}&layer=2&head=1&query=50&key={top[0]['key']}")
    page.get_by_test_id("sweep").click()
    tried = page.get_by_test_id("history").locator("tbody tr")
    expect(tried).to_have_count(len(top))
    expect(page.locator(".history .scatter-dot")).to_have_count(len(top) - 1)
    expect(tried.last).to_contain_text("→ “")
    expect(tried.last).to_contain_text(str(top[0]["key"]))
