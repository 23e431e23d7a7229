"""The page before there is a map, in a browser: what it waits for, how far that is, and what went wrong."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Page, expect

from regard.errors import ModelError
from regard.models import Recording
from regard.viewer import Settings
from regard.viewer.serving import _Making
from regard.viewer.session import Session
from regard.viewer.starting import Starting
from viewer.e2e.waiting import map_is_drawn
from viewer.samples import saved

STEPS = ("Loading PyTorch", "Loading the viewer", r"Loading the model \(lamp\)")


class Slow:
    """A server whose session is made when the test says so, or not at all."""

    def __init__(self, settings: Settings) -> None:
        self.error: Exception | None = None
        self.tell: Callable[..., None] = lambda *_: None
        self._settings, self._begun, self._go = settings, threading.Event(), threading.Event()
        starting = Starting()
        config = uvicorn.Config(starting, port=0, log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.address = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        self._making = _Making(settings, self._make, starting, self._server)
        self._making.start()
        self._begun.wait()

    def end(self, error: Exception | None = None) -> None:
        """Let the session be there, or fail."""
        self.error = error
        self._go.set()

    def close(self) -> None:
        self._go.set()
        self._making.join()
        self._server.should_exit = True
        self._thread.join()
        self._making.close()

    def _make(self, tell: Callable[..., None]) -> Any:
        self.tell = tell
        self._begun.set()
        self._go.wait()
        if self.error is not None:
            raise self.error
        return Session(self._settings)


@pytest.fixture
def slow(tmp_path: Path, small: Recording) -> Iterator[Slow]:
    found = Slow(Settings((saved(small, tmp_path / "small.regard"),), cache=tmp_path / "cache"))
    yield found
    found.close()


def test_the_page_says_what_it_waits_for_and_becomes_the_map(slow: Slow, page: Page):
    page.goto(slow.address)
    status = page.get_by_role("status")
    slow.tell("Loading the model (lamp)")
    expect(status).to_have_text(re.compile(r"Loading the model \(lamp\): \d+(\.\d)? s"))
    bar = page.get_by_role("progressbar")
    expect(bar).not_to_have_attribute("value", re.compile("."))
    slow.tell("Recording", 3, 9)
    expect(status).to_have_text(re.compile(r"Recording: 3 of 9, about \d+ s left"))
    expect(bar).to_have_js_property("position", 3 / 9)
    ended = page.get_by_role("listitem")
    expect(ended).to_have_text([re.compile(f"✓ {name}: ") for name in STEPS])
    slow.end()
    page.get_by_test_id("tab-map").wait_for()
    map_is_drawn(page)


def test_an_error_while_the_model_loads_stays_on_the_page(slow: Slow, page: Page):
    page.goto(slow.address)
    slow.tell("Loading the model (lamp)")
    expect(page.get_by_role("status")).to_contain_text("lamp")
    slow.end(ModelError("the model at lamp cannot be read."))
    said = page.get_by_role("alert")
    expect(said).to_contain_text("the model at lamp cannot be read.")
    slow.close()
    page.wait_for_timeout(500)  # longer than between two questions to the server
    expect(said).to_contain_text("the model at lamp cannot be read.")
    expect(page.get_by_role("progressbar")).to_be_hidden()
