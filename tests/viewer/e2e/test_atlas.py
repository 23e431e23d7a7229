"""The atlas in a browser: heads by kind and by statistic, and the way from a picture to its map."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from viewer.e2e.waiting import eventually


@pytest.fixture(scope="module")
def atlas(server, short) -> tuple[str, list[dict]]:
    """A short recording, and every head of it as the server tells it."""
    return short, httpx.get(f"{server}/api/recordings/{short}/atlas", timeout=None).json()["heads"]


def kinds_of(head: dict) -> set[str]:
    return {kind for kind, found in head["findings"].items() if (found["score"] or 0) >= found["bar"]}


def test_a_kind_keeps_its_heads_and_fades_the_others(page: Page, server, atlas):
    record, heads = atlas
    kind = max(heads[0]["findings"], key=lambda kind: sum(kind in kinds_of(head) for head in heads))
    wanted = {(head["layer"], head["head"]) for head in heads if kind in kinds_of(head)}
    assert 0 < len(wanted) < len(heads)
    page.goto(f"{server}/#/atlas?rec={record}")
    chip = page.get_by_test_id(f"kind-{kind}")
    expect(chip).to_contain_text(str(len(wanted)))
    chip.click()
    expect(page.locator("[data-passes=true]")).to_have_count(len(wanted))
    for layer, head in wanted:
        expect(page.get_by_test_id(f"head-{layer}-{head}")).to_have_attribute("data-passes", "true")
    expect(page.get_by_test_id("atlas-count")).to_contain_text(f"{len(wanted)} of {len(heads)} heads")
    expect(page).to_have_url(re.compile("kind="))


def test_an_address_restores_the_order_by_a_statistic(page: Page, server, atlas):
    record, heads = atlas
    first = max(heads, key=lambda head: head["statistics"]["entropy"])
    page.goto(f"{server}/#/atlas?rec={record}&sort=stat%3Aentropy")
    shown = page.get_by_test_id("atlas-list").locator("button")
    expect(shown).to_have_count(len(heads))
    expect(shown.first).to_have_attribute("data-testid", f"head-{first['layer']}-{first['head']}")


def test_a_threshold_drops_the_heads_below_it(page: Page, server, atlas):
    record, heads = atlas
    values = sorted(head["statistics"]["entropy"] for head in heads)
    least = (values[3] + values[4]) / 2
    page.goto(f"{server}/#/atlas?rec={record}&stat=entropy&above={least}")
    expect(page.locator("[data-passes=true]")).to_have_count(len(heads) - 4)


def test_a_head_tells_its_evidence_when_focused_and_opens_in_the_map(page: Page, server, atlas):
    record, heads = atlas
    head = next(head for head in heads if kinds_of(head))
    page.goto(f"{server}/#/atlas?rec={record}")
    picture = page.get_by_test_id(f"head-{head['layer']}-{head['head']}")
    picture.focus()
    details = page.get_by_test_id("atlas-details")
    expect(details).to_contain_text(f"Layer {head['layer']}, head {head['head']}")
    expect(details).to_contain_text(head["findings"][next(iter(kinds_of(head)))]["evidence"])
    expect(picture.locator("canvas")).to_have_attribute("data-state", "ready")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("view-map")).to_be_visible()
    expect(page.get_by_test_id("pick-layer")).to_have_value(str(head["layer"]))
    expect(page.get_by_test_id("pick-head")).to_have_value(str(head["head"]))


def test_a_statistic_in_use_is_explained_and_heads_are_numbered(page: Page, server, atlas):
    record, cards = atlas
    page.goto(f"{server}/#/atlas?rec={record}")
    heads = page.locator(".atlas-heads span")
    expect(heads).to_have_text(["head", *(str(head) for head in sorted({card["head"] for card in cards}))])
    page.get_by_test_id("sort").select_option("stat:entropy")
    expect(page.get_by_test_id("meaning")).to_contain_text("How spread the rows are")


def test_pictures_out_of_sight_are_not_asked_for(page: Page, server, atlas):
    record, _ = atlas
    asked: set[str] = set()
    held = []
    page.route(re.compile("/thumb"), lambda route: (asked.add(route.request.url), held.append(route)))
    dropped: set[str] = set()
    page.on("requestfailed", lambda request: dropped.add(request.url))
    page.set_viewport_size({"width": 1280, "height": 500})
    page.goto(f"{server}/#/atlas?rec={record}&sort=kind:induction")
    eventually(page, lambda: len(asked) == 4)
    first = set(asked)
    page.evaluate("document.getElementById('view').scrollTo(0, 1e6)")
    # Those at the top give up their places, and those at the bottom take them.
    eventually(page, lambda: dropped >= first)
    eventually(page, lambda: len(asked - first) >= 4)
    page.unroute_all(behavior="ignoreErrors")


def test_pictures_wear_the_colours_chosen_on_the_map(page: Page, server, atlas):
    record, _ = atlas
    picture = page.locator("[data-testid=head-3-0] .thumb")

    def shown() -> str:
        return picture.evaluate("canvas => canvas.toDataURL()")

    looks: set[str] = set()
    for options in ("", "&bright=0.02", "&bright=0.02&scale=linear", "&palette=inferno"):
        page.goto(f"{server}/#/atlas?rec={record}{options}")
        expect(picture).to_have_attribute("data-state", "ready")
        eventually(page, lambda: shown() not in looks)
        looks.add(shown())
        if not options:
            expect(page.get_by_test_id("legend")).to_have_attribute("aria-label", re.compile("to 1$"))
    page.goto(f"{server}/#/map?rec={record}&layer=3&head=0&bright=0.02")
    page.get_by_test_id("tab-atlas").click()
    expect(page.get_by_test_id("legend")).to_have_attribute("aria-label", re.compile(r"to 0\.02$"))
