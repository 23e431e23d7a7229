"""Every view, as axe judges it: names, roles, contrast; in light, in dark, and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from viewer.e2e.waiting import map_is_drawn

AXE = Path(__file__).parents[3] / "frontend/node_modules/axe-core/axe.min.js"
pytestmark = pytest.mark.skipif(not AXE.is_file(), reason="NO AXE: run `make lint`, which installs it.")

RUN = """async (runOnly) => {
  const { violations } = await axe.run(document, { runOnly, resultTypes: ['violations'] });
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) =>
    `${id}: ${target.join(' ')}: ${failureSummary.split('\\n')[1].trim()}`));
}"""
ALL = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
OF_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
# A view, and what says that it is there.
VIEWS = {
    "map": "layer=6&head=3&query=40&key=30&mark=induction",
    "text": "layer=6&head=3&query=40",
    "token": "query=40&key=30",
    "atlas": "layer=6&head=3",
    "compare": "layer=6&head=3&with={rec}&atlases=1",
    "steps": "layer=6&head=3&query=40&step=weights",
    "matter": "layer=6&head=3&query=40&key=30",
    "try": "",
    "check": "",
}
THERE = {
    "map": "places",
    "token": "token-head",
    "atlas": "atlas-details",
    "compare": "moved",
    "steps": "key-table",
}


@pytest.mark.parametrize("kind", ["page", "phone"])
def test_axe_finds_nothing_in_any_view(request: pytest.FixtureRequest, server: str, short: str, kind: str):
    page: Page = request.getfixturevalue(kind)
    source = AXE.read_text()
    found: list[str] = []
    for view, options in VIEWS.items():
        page.goto(f"{server}/#/{view}?rec={short}&{options.format(rec=short)}")
        expect(page.get_by_test_id(f"view-{view}")).to_be_visible()
        if view in THERE:
            page.get_by_test_id(THERE[view]).first.wait_for()
        if view == "map":
            map_is_drawn(page)
        page.evaluate(source)  # a script element would be refused by the page's own policy
        found += [f"{view}: {line}" for line in page.evaluate(RUN, ALL)]
        page.emulate_media(color_scheme="dark")
        found += [f"{view} in the dark: {line}" for line in page.evaluate(RUN, OF_COLOURS)]
        page.emulate_media(color_scheme="light")
    assert not found, "\n".join(found)
