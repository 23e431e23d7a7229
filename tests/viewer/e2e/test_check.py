"""The page that checks printed numbers, in a browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect


def test_a_pasted_example_is_judged_cell_by_cell_with_its_causes(page: Page, server):
    page.goto(f"{server}/#/check")
    page.get_by_test_id("check-ask").click()
    expect(page.get_by_test_id("check-summary")).to_have_text("2 of 11 checked numbers are not right")
    output = page.get_by_test_id("check-output")
    expect(output.locator("td.check-rounded")).to_have_count(2)
    expect(output.locator("td.check-rounded").first).to_contain_text("6.017")
    expect(output.get_by_test_id("check-cause")).to_contain_text("Rounded too early")
    expect(page.get_by_test_id("check-weights").locator("td.check-right")).to_have_count(3)
    page.get_by_test_id("check-text").fill("softmax(1, 2, 3) = 0.09, 0.24, 0.67")
    page.get_by_test_id("check-ask").click()
    expect(page.get_by_test_id("check-summary")).to_have_text("all 3 checked numbers are right")
    expect(page).to_have_url(re.compile("printed=softmax"))


def test_what_cannot_be_read_is_said_in_one_sentence(page: Page, server):
    page.goto(f"{server}/#/check")
    page.get_by_test_id("check-text").fill("scores: 1 2 3\nweights: 0.5 0.5")
    page.get_by_test_id("check-ask").click()
    expect(page.get_by_test_id("check-failure")).to_contain_text("weights has one cell per cell of scores.")
    expect(page.get_by_test_id("check-result")).to_have_count(0)


def test_the_check_fits_a_phone(phone: Page, server):
    phone.goto(f"{server}/#/check")
    phone.get_by_test_id("check-ask").tap()
    phone.get_by_test_id("check-result").wait_for()
    wide = phone.evaluate(
        "() => { const v = document.getElementById('view'); return v.scrollWidth - v.clientWidth; }"
    )
    assert wide <= 0
