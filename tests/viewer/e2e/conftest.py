"""The bundled story in a server process, a small recording in a server here, and Chromium before them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import regard
from processes import checkout, started
from regard.models import Recording
from regard.viewer import Settings
from regard.viewer.session import Session
from viewer.e2e.waiting import PATIENCE
from viewer.e2e.working import done, recorded
from viewer.samples import layer, recording, saved
from viewer.serving import served

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'regard[test]'")
LAPTOP = {"width": 1280, "height": 800}
playwright.expect.set_options(timeout=PATIENCE)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _chromium() -> str | None:
    """$REGARD_CHROMIUM, or the machine's own; None leaves it to what playwright has installed."""
    given = os.environ.get("REGARD_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as engine:
        try:
            opened = engine.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(
                f"NO CHROMIUM: THE PAGE IS NOT TESTED. Set REGARD_CHROMIUM, or: playwright install. {error}"
            )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def small() -> Recording:
    """301 tokens that look like HTML: one causal layer, one with a window."""
    masks = regard.Causal(), regard.Causal() & regard.Window(63)
    return recording(*(layer(i, 301, 301, mask) for i, mask in enumerate(masks)))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("viewer")


def serve(cache: Path, *arguments: str) -> Iterator[str]:
    """The address of a `regard view` process."""
    page = Path(regard.__file__).parent / "viewer" / "static" / "index.html"
    if not page.exists():
        pytest.fail("The page is not built: run `make frontend`.")
    command = [sys.executable, "-m", "regard", "view", "--no-open", "--cache", cache, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    said: list[str] = []
    with started(*command, env=checkout(PYTHONUNBUFFERED="1"), **pipes) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"regard is at (http://\S+?)/?\s", line):
                _wait_for_the_viewer(found[1])
                yield found[1]
                return
        pytest.fail(f"The server did not start:\n{''.join(said)}")


def served_here(cache: Path, *recordings: Path, token: str | None = None) -> Iterator[str]:
    """The address of a server in this process, which starts at once."""
    with served(Session(Settings(cache=cache, recordings=recordings, token=token))) as address:
        yield address


def _wait_for_the_viewer(address: str) -> None:
    """The server answers at once, and for a while only that it is starting."""
    while httpx.get(f"{address}/api/info", timeout=None).status_code == 503:
        time.sleep(0.1)


@pytest.fixture(scope="session")
def server(cache: Path) -> Iterator[str]:
    """`regard view` as a newcomer starts it: on the bundled model and story."""
    yield from serve(cache)


@pytest.fixture(scope="session")
def short(server: str) -> str:
    """A recording short enough for the model to run again, its atlas made."""
    with httpx.Client(base_url=server, timeout=None) as client:
        name = recorded(client)
        answer = client.get(f"/api/recordings/{name}/atlas")
        if answer.status_code == 202:
            done(client, answer.json()["job"])
        return name


@pytest.fixture(scope="session")
def small_server(cache: Path, small: Recording) -> Iterator[str]:
    """A server of `small`."""
    shelf = cache / "shelf"
    shelf.mkdir()
    yield from served_here(cache, saved(small, shelf / "small.regard").parent)


@pytest.fixture(scope="session")
def story(server: str, cache: Path) -> Recording:
    """The bundled story's recording as Python sees it: the judge of every number on the page."""
    return Recording.open(next((cache / "recordings").glob("*.regard")))


@pytest.fixture(scope="session")
def windows(browser: playwright.Browser) -> Callable[..., playwright.BrowserContext]:
    """A window of each kind, opened once: a new one takes Chromium longer than a page in an old one."""
    found: dict[str, playwright.BrowserContext] = {}

    def window(kind: str, **options: object) -> playwright.BrowserContext:
        if kind not in found:
            found[kind] = browser.new_context(accept_downloads=True, **options)  # pyright: ignore
            found[kind].set_default_timeout(PATIENCE)
            found[kind].new_page()  # stays, and so does the window
        return found[kind]

    return window


def _open(window: playwright.BrowserContext, *, strict: bool = False) -> Iterator[playwright.Page]:
    """A page of its own; a script error in it, or if `strict` any complaint at all, fails the test."""
    page = window.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    if strict:
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.on("requestfailed", lambda request: errors.append(request.url))
    yield page
    if page.url.startswith("http"):
        page.evaluate("localStorage.clear()")  # the next page knows nothing of this one
    for opened in window.pages[1:]:
        opened.close()
    assert errors == []


@pytest.fixture
def page(windows) -> Iterator[playwright.Page]:
    yield from _open(windows("laptop", viewport=LAPTOP, reduced_motion="reduce"))


@pytest.fixture
def moving(windows) -> Iterator[playwright.Page]:
    """A page as most readers have it, with its animations."""
    yield from _open(windows("moving", viewport=LAPTOP))


@pytest.fixture
def offline(windows) -> Iterator[playwright.Page]:
    """A page that can reach nothing but files, and may complain of nothing."""
    window = windows("offline", viewport=LAPTOP, reduced_motion="reduce", offline=True)
    yield from _open(window, strict=True)


@pytest.fixture
def phone(windows) -> Iterator[playwright.Page]:
    size = {"width": 390, "height": 844}
    yield from _open(windows("phone", viewport=size, reduced_motion="reduce", has_touch=True, is_mobile=True))
