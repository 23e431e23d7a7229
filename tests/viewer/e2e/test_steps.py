"""Steps in a browser: forward and back with a worked example's numbers, and softmax under one's hand."""

from __future__ import annotations

import math
import re

import pytest
import torch
from playwright.sync_api import Page, expect

from regard.tracing import example

ORDER = ["tokens", "projections", "scores", "scaled", "masked", "weights", "mix", "parallel"]


def numbers(page: Page, testid: str, column: str) -> list[float]:
    page.get_by_test_id(testid).wait_for()
    cells = page.get_by_test_id(testid).locator(column).all_inner_texts()
    return [-math.inf if "∞" in cell else float(cell.replace("−", "-")) for cell in cells]


def test_the_worked_example_goes_forward_and_back_with_its_numbers(page: Page, server):
    trace = example("cat")
    page.goto(f"{server}/#/steps?example=cat")
    for name in ORDER:
        expect(page.get_by_test_id(f"step-{name}")).to_have_attribute("aria-current", "step")
        if name in ("scores", "scaled", "masked", "weights"):
            shown = numbers(page, "key-table", "tbody td.now")
            digits = 3 if name == "weights" else 2
            assert shown == pytest.approx(trace[name].value[3].tolist(), abs=0.51 * 10**-digits)
        if name == "mix":
            shown = numbers(page, "mix", ".mix-sum")
            assert shown == pytest.approx(trace.output[3].tolist(), abs=0.0051)
        if name != ORDER[-1]:
            page.get_by_test_id("next").click()
    expect(page.get_by_test_id("next")).to_be_disabled()
    for name in reversed(ORDER[:-1]):
        page.keyboard.press("ArrowLeft")
        expect(page.get_by_test_id(f"step-{name}")).to_have_attribute("aria-current", "step")
    expect(page.get_by_test_id("back")).to_be_disabled()


def test_an_address_restores_the_step_and_the_query_of_an_example(page: Page, server):
    page.goto(f"{server}/#/steps?example=cat&row=1&step=weights")
    expect(page.get_by_test_id("key-table")).to_contain_text("not allowed")
    assert numbers(page, "key-table", "tbody td.now") == [0.473, 0.527, 0, 0]


def test_temperature_and_scale_recompute_the_weights_on_the_spot(page: Page, server):
    scores = example("cat").scores[3]
    page.goto(f"{server}/#/steps?example=cat&step=weights&t=0.25&root=no")
    wanted = (scores / 0.25).softmax(-1)
    shown = numbers(page, "what-if-bars", ".bars-number span:last-child")
    assert shown == pytest.approx(wanted.tolist(), abs=0.00051)
    entropy = float(torch.special.entr(wanted).sum())
    expect(page.get_by_test_id("spread")).to_contain_text(f"{entropy:.2f} nats")
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_test_id("temperature-shown")).to_have_text("1.00")
    shown = numbers(page, "what-if-bars", ".bars-number span:last-child")
    assert shown == pytest.approx(example("cat").weights[3].tolist(), abs=0.00051)
    expect(page).not_to_have_url(re.compile("root="))


def test_a_real_heads_weights_are_those_of_its_map(page: Page, server, story):
    row = story.maps[2][0, 3, 40]
    page.goto(f"{server}/#/steps?layer=2&head=3&query=40&step=weights")
    table = page.get_by_test_id("key-table")
    table.wait_for()
    places = [int(text) for text in table.locator(".token-index").all_inner_texts()]
    assert {40, int(row.argmax())} <= set(places)
    shown = numbers(page, "key-table", "tbody td.now")
    assert shown == pytest.approx(row[places].tolist(), abs=0.00051)
    page.get_by_test_id("step-next").click()
    expect(page.get_by_test_id("next-bars")).to_contain_text("%")


def test_steps_fit_a_phone(phone: Page, server):
    phone.goto(f"{server}/#/steps?example=cat&step=weights")
    phone.get_by_test_id("key-table").wait_for()
    wide = phone.evaluate(
        "() => { const v = document.getElementById('view'); return v.scrollWidth - v.clientWidth; }"
    )
    assert wide <= 0
    phone.get_by_test_id("next").tap()
    expect(phone.get_by_test_id("mix")).to_be_visible()
