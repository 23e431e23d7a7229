"""A server for other machines: the token comes with the address and does not stay in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from regard import Causal
from viewer.e2e.conftest import served_here
from viewer.e2e.waiting import map_is_drawn
from viewer.samples import layer, recording, saved


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    folder = saved(recording(layer(0, 65, 65, Causal())), tmp_path / "a.regard")
    for plain in served_here(tmp_path / "cache", folder, token="opensesame"):
        yield f"{plain}/?token=opensesame"


def test_the_token_leaves_the_address_and_the_page_goes_on(page: Page, address: str):
    page.goto(f"{address}#/map?layer=0&head=1")
    map_is_drawn(page)
    assert "token" not in page.url
    assert "head=1" in page.url
    page.reload()
    map_is_drawn(page)
