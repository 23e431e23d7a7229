"""Try it in a browser: a text is continued token by token, stopped, or recorded as it is."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import Page, Route, expect

# The page itself presses Cancel as soon as there is a token; asked from outside, it might come too late.
STOP_AT_ONCE = """() => {
  const look = new MutationObserver(() => {
    if (!document.querySelector('[data-testid=made-0]')) return;
    look.disconnect();
    document.querySelector('[data-testid=cancel]')?.click();
  });
  look.observe(document.body, { childList: true, subtree: true });
}"""


def test_a_text_grows_token_by_token_and_opens_as_a_recording(page: Page, server):
    page.goto(f"{server}/#/try?n=5&temperature=0")
    page.get_by_test_id("try-text").fill("The old dog and the <b>young</b> dog went to the")
    page.get_by_test_id("generate").click()
    page.get_by_test_id("open-recording").wait_for()
    made = page.get_by_test_id("growing").locator("[role=option]")
    expect(made).to_have_count(5)
    expect(page.get_by_test_id("alternatives").locator("tbody tr").first).to_contain_text("%")
    text = "".join(made.all_text_contents())
    assert page.locator("#view b").filter(has_text="young").count() == 0
    page.get_by_test_id("open-recording").click()
    expect(page.get_by_test_id("view-map")).to_be_visible()
    record = re.search(r"rec=([^&]+)", page.url)[1]
    tokens = httpx.get(f"{server}/api/recordings/{record}/tokens", timeout=None).json()
    assert "".join(tokens["pieces"]).endswith(text)


def test_arrow_keys_walk_through_what_was_made(page: Page, server):
    page.goto(f"{server}/#/try?n=3&temperature=0&text=Once+upon+a")
    page.get_by_test_id("generate").click()
    page.get_by_test_id("open-recording").wait_for()
    page.get_by_role("listbox", name="New tokens").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_test_id("made-1")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_test_id("alternatives")).to_contain_text("New token 2")


def test_a_generation_can_be_stopped(page: Page, server):
    page.goto(f"{server}/#/try?n=200&text=Once+upon+a+time")
    page.evaluate(STOP_AT_ONCE)
    page.get_by_test_id("generate").click()
    expect(page.get_by_text("Stopped.")).to_be_visible()
    expect(page.get_by_test_id("generate")).to_be_enabled()
    assert 0 < page.get_by_test_id("growing").locator("[role=option]").count() < 200


def test_a_recorded_text_leads_to_its_map(page: Page, server):
    page.goto(f"{server}/#/try")
    page.get_by_test_id("try-text").fill("A short text.")
    page.get_by_test_id("record").click()
    expect(page.get_by_test_id("view-map")).to_be_visible()
    expect(page.get_by_test_id("pick-recording")).to_contain_text("A short text.")


def test_what_is_being_typed_outlives_the_opening_of_a_recording(page: Page, server):
    held: list[Route] = []
    page.route("**/api/recordings", lambda route: held.append(route))
    page.goto(f"{server}/#/try")
    text = page.get_by_test_id("try-text")
    text.fill("")
    page.keyboard.type("The ti")
    with page.expect_response("**/api/recordings"):
        held.pop(0).continue_()
    page.unroute("**/api/recordings")
    for route in held:
        route.continue_()
    expect(page.locator(".app-note")).to_contain_text("tokens")
    page.keyboard.type("ger.")
    expect(text).to_be_focused()
    expect(text).to_have_value("The tiger.")
