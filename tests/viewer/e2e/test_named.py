"""What stands under a head's name is that head's: answers are held back, dropped, and let go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from playwright.sync_api import Error, Page, Route, expect

from regard.models import Recording
from viewer.e2e.reading import pixel, weight_shown
from viewer.e2e.waiting import eventually, map_is_drawn

# A query and key, far enough in that the cells around them are seen.
PLACE = "layer=5&head=0&query=600&key=570"


@contextmanager
def held(page: Page, pattern: str) -> Iterator[list[Route]]:
    """Requests of a pattern wait until the block ends."""
    routes: list[Route] = []
    open_ = False

    def hold(route: Route) -> None:
        if open_:
            route.continue_()
        else:
            routes.append(route)

    page.route(pattern, hold)
    yield routes
    open_ = True
    for route in routes:
        with suppress(Error):  # the page may have taken its question back
            route.continue_()


def next_head(page: Page) -> None:
    page.get_by_role("button", name="Head: next").click()
    expect(page.get_by_test_id("pick-head")).to_have_value("1")


def test_a_map_and_its_numbers_are_blank_until_their_own_answers_are_there(
    page: Page, server: str, story: Recording
):
    page.goto(f"{server}/#/map?{PLACE}&x=570&y=600&z=4&box=590-601_530-541")
    map_is_drawn(page)
    assert weight_shown(page) == pytest.approx(float(story.maps[5][0, 0, 600, 570]), rel=1e-5)
    expect(page.get_by_test_id("region-numbers")).to_be_visible()
    assert pixel(page, 600, 560)[3] == 255
    with held(page, "**/layers/5/heads/1/**") as routes:
        next_head(page)
        eventually(page, lambda: len(routes) > 2)
        expect(page.get_by_test_id("readout")).to_have_attribute("aria-busy", "true")
        expect(page.get_by_test_id("cell-weight")).to_have_count(0)
        expect(page.get_by_test_id("region-numbers")).to_have_count(0)
        eventually(page, lambda: pixel(page, 600, 560)[3] == 0)
        small = page.locator(".minimap canvas").evaluate(
            "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((x) => x > 0)"
        )
        assert not small
    map_is_drawn(page)
    assert weight_shown(page) == pytest.approx(float(story.maps[5][0, 1, 600, 570]), rel=1e-5)
    eventually(page, lambda: pixel(page, 600, 560)[3] == 255)


def test_an_answer_that_never_comes_leaves_a_blank_and_a_sentence(page: Page, server: str):
    page.goto(f"{server}/#/map?{PLACE}&x=570&y=600&z=4")
    map_is_drawn(page)
    expect(page.get_by_test_id("cell-weight")).to_be_visible()
    page.route("**/layers/5/heads/1/**", lambda route: route.abort())
    next_head(page)
    expect(page.get_by_test_id("readout")).to_contain_text("does not answer")
    expect(page.get_by_test_id("cell-weight")).to_have_count(0)
    eventually(page, lambda: pixel(page, 600, 560)[3] == 0)


@pytest.mark.parametrize(
    ("view", "number"),
    [("text", "top-weight"), ("steps", "key-table"), ("matter", "heaviest")],
)
def test_no_view_shows_the_numbers_of_the_head_before(page: Page, server: str, view: str, number: str):
    page.goto(f"{server}/#/{view}?{PLACE}&step=weights")
    before = page.get_by_test_id(number).first
    expect(before).to_contain_text(re.compile(r"\d"))
    with held(page, "**/layers/5/heads/1/**") as routes:
        next_head(page)
        eventually(page, lambda: len(routes) > 0)
        if view == "matter":
            expect(page.get_by_test_id(number).locator("tbody tr")).to_have_count(0)
        else:
            expect(page.get_by_test_id(number)).to_have_count(0)
        assert page.locator(".word[data-weight]").count() == 0
    expect(page.get_by_test_id(number).first).to_contain_text(re.compile(r"\d"))


def test_lines_between_words_are_those_of_the_head_that_is_named(page: Page, server: str):
    page.goto(f"{server}/#/text?layer=5&head=0&query=120&arcs=lines")
    edges = page.get_by_test_id("lines").locator(".edge")
    expect(edges.first).to_be_attached()
    with held(page, "**/layers/5/heads/1/**") as routes:
        next_head(page)
        eventually(page, lambda: len(routes) > 0)
        expect(edges).to_have_count(0)
    expect(edges.first).to_be_attached()
