"""An address is a view: opened, restored, walked back."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from viewer.e2e.waiting import map_is_drawn


def test_an_address_restores_head_place_colours_and_cell(page: Page, server: str):
    page.goto(
        f"{server}/#/map?layer=4&head=3&x=700&y=720&z=4&scale=linear&palette=inferno&query=720&key=700&lines=s"
    )
    map_is_drawn(page)
    camera = page.evaluate("window.regard.map.camera()")
    assert [round(camera[name]) for name in ("x", "y", "scale")] == [700, 720, 16]
    expect(page.get_by_test_id("pick-layer")).to_have_value("4")
    expect(page.get_by_test_id("pick-head")).to_have_value("3")
    expect(page.get_by_test_id("palette")).to_have_value("inferno")
    expect(page.get_by_test_id("scale-linear")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_test_id("line-s")).to_be_checked()
    expect(page.get_by_test_id("line-w")).not_to_be_checked()
    expect(page.get_by_test_id("readout")).to_contain_text("720")


def test_what_the_reader_does_is_in_the_address(page: Page, server: str):
    page.goto(server)
    map_is_drawn(page)
    page.get_by_test_id("blocks-mean").click()
    page.wait_for_url(re.compile("how=mean"))
    page.evaluate("window.regard.map.center(400, 300, 16)")
    page.wait_for_url(re.compile(r"x=300\.5&y=400\.5&z=4"))
    again = page.context.new_page()
    again.goto(page.url)
    map_is_drawn(again)
    assert round(again.evaluate("window.regard.map.camera().y")) in (400, 401)


def test_the_back_button_undoes_a_change_of_view_and_of_head(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    page.get_by_role("button", name="Head: next").click()
    page.wait_for_url(re.compile("head=1"))
    page.get_by_test_id("tab-text").click()
    expect(page.get_by_test_id("view-text")).to_be_visible()
    page.go_back()
    expect(page.get_by_test_id("view-map")).to_be_visible()
    expect(page.get_by_test_id("pick-head")).to_have_value("1")
    page.go_back()
    expect(page.get_by_test_id("pick-head")).to_have_value("0")
    page.go_back()  # what the page filled in by itself was no step
    expect(page).to_have_url("about:blank")


def test_an_address_that_asks_for_too_much_gets_what_there_is(page: Page, server: str):
    page.goto(f"{server}/#/map?layer=99&head=99&query=99999&key=3&x=oops&how=median")
    map_is_drawn(page)
    expect(page.get_by_test_id("pick-head")).to_have_value("5")
    expect(page.get_by_test_id("blocks-max")).to_have_attribute("aria-pressed", "true")


def test_a_link_followed_in_an_open_page_may_leave_out_what_is_open(page: Page, server: str):
    refused: list[str] = []
    page.on("response", lambda said: refused.append(said.url) if said.status >= 400 else None)
    page.goto(f"{server}/#/map?layer=5&head=0")
    map_is_drawn(page)
    for address, head in (
        ("#/map?layer=2&head=3", "3"),
        ("#/text?query=60", "0"),
        ("#/map?role=nobody&head=99", "5"),
    ):
        page.goto(f"{server}/{address}")
        page.wait_for_url(re.compile("role=decoder"))
        expect(page.get_by_test_id("pick-head")).to_have_value(head)
    map_is_drawn(page)
    assert refused == []
