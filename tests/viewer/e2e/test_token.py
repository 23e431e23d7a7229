"""A server for other machines: the token comes with the address and does not stay in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from regard import Causal
from viewer.e2e.conftest import serve
from viewer.e2e.waiting import map_is_drawn
from viewer.samples import layer, recording, saved


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    folder = saved(recording(layer(0, 65, 65, Causal())), tmp_path / "a.regard")
    yield from serve(tmp_path / "cache", "--host", "0.0.0.0", str(folder))


def test_the_token_leaves_the_address_and_the_page_goes_on(page: Page, address: str):
    assert "?token=" in address
    page.goto(f"{address}#/map?layer=0&head=1")
    map_is_drawn(page)
    assert "token" not in page.url
    assert "head=1" in page.url
    page.reload()
    map_is_drawn(page)
