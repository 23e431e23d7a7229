"""The widget in a real notebook: a Jupyter server, a kernel, and Chromium in front of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from processes import checkout, python, started
from regard.models import Recording
from viewer.e2e.reading import drag, weight_shown
from viewer.e2e.waiting import map_is_drawn, until

# Looked for and not imported: JupyterLab runs in a process of its own, and takes seconds to import.
for package in ("jupyterlab", "anywidget"):
    if find_spec(package) is None:
        missing = f"NO {package.upper()}: THE WIDGET IS NOT TESTED IN A NOTEBOOK."
        pytest.skip(missing, allow_module_level=True)

SHOW = """\
import regard
from viewer.samples import layer, recording
masks = regard.Causal(), regard.Causal() & regard.Window(63)
seen = recording(*(layer(i, 301, 301, mask) for i, mask in enumerate(masks)))
widget = seen.show(layer=0, head=3, query=200, key=180, x=180.5, y=200.5, z=4.5, height=520)
widget"""
MOVE = """\
print("at", round(widget.x), round(widget.y))
widget.head = 2"""


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A notebook of two cells that have not been run."""
    cells = [
        {
            "id": name,
            "cell_type": "code",
            "source": text,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for name, text in (("show", SHOW), ("move", MOVE))
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = tmp_path / "work" / "look.ipynb"
    path.parent.mkdir()
    path.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Jupyter's own settings left alone; its kernels see this checkout."""
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    return checkout(Path(__file__).parents[2], **own)


@pytest.fixture
def jupyter(notebook: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a Jupyter server in the notebook's folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = (
        tmp_path / "config/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    )
    quiet.parent.mkdir(parents=True)
    quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--ip=127.0.0.1", "--IdentityProvider.token=", f"--ServerApp.root_dir={notebook.parent}"]
    log = tmp_path / "jupyter.log"
    with log.open("w") as out, started(*command, env=environment, stdout=out, stderr=out) as process:
        _wait_for(f"http://127.0.0.1:{port}/api", process, log)
        yield f"http://127.0.0.1:{port}"


def _wait_for(address: str, process: subprocess.Popen[str], log: Path) -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(address).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"Jupyter did not start:\n{log.read_text()}")


def run_cell(page: Page, number: int) -> None:
    page.locator(".jp-CodeCell").nth(number).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")


@pytest.mark.long
def test_a_recording_is_panned_and_read_in_a_notebook(page: Page, jupyter: str, small: Recording):
    page.goto(f"{jupyter}/doc/tree/look.ipynb")
    # A run before the kernel is there would be lost.
    expect(page.get_by_text("| Idle")).to_be_visible()
    run_cell(page, 0)
    shown = page.get_by_test_id("regard-widget")
    failed = page.locator(".jp-CodeCell [data-mime-type$='stderr'], .jp-CodeCell [data-mime-type$='error']")
    expect(shown.or_(failed).first).to_be_visible()
    assert failed.all_inner_texts() == []
    shown.scroll_into_view_if_needed()
    map_is_drawn(page)
    assert weight_shown(page) == pytest.approx(float(small.maps[0][0, 3, 200, 180]), rel=1e-5)
    # The picture is there for a page without a kernel, and out of the way where there is one.
    still = page.locator("[data-regard-still]")
    expect(still).to_have_count(1)
    expect(still).to_be_hidden()

    before = page.evaluate("window.regard.map.camera()")
    drag(page, 200, 180, down=-6, right=-8)
    until(page, f"window.regard.map.camera().x > {before['x'] + 7.9}")
    until(page, f"window.regard.map.camera().y > {before['y'] + 5.9}")
    map_is_drawn(page)
    spot = page.evaluate("window.regard.map.place(206, 187)")
    page.mouse.move(spot["x"], spot["y"])
    expect(page.get_by_test_id("readout").locator(".token-index")).to_have_text(["206", "187"])
    wanted = float(small.maps[0][0, 3, 206, 187])
    assert weight_shown(page) == pytest.approx(wanted, rel=1e-5)
    assert page.evaluate("window.regard.map.value(206, 187)") == pytest.approx(wanted, rel=1e-5)

    # The kernel knows where the reader went, and can lead on.
    camera = page.evaluate("window.regard.map.camera()")
    cell = page.locator(".jp-CodeCell").nth(1)
    output = cell.locator(".jp-OutputArea-output").first
    for number in range(2, 102):  # the page tells the kernel a moment after it has come to rest
        run_cell(page, 1)
        expect(cell.locator(".jp-InputPrompt")).to_have_text(f"[{number}]:")
        expect(output).to_contain_text("at")
        told = [int(word) for word in output.inner_text().split()[1:]]
        if told == pytest.approx([camera["x"], camera["y"]], abs=1):
            break
    assert told == pytest.approx([camera["x"], camera["y"]], abs=1)
    expect(page.get_by_test_id("pick-head")).to_have_value("2")


@pytest.mark.long
def test_a_page_made_of_a_notebook_shows_the_picture(
    browser: Browser, notebook: Path, environment: dict[str, str]
):
    done = python("-m", "nbconvert", "--to", "html", "--execute", notebook, env=environment)
    assert done.returncode == 0, done.stderr
    # What such a page fetches for widgets it does not get here, as on a train.
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto(notebook.with_suffix(".html").as_uri())
        picture = page.locator("[data-regard-still]")
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.naturalWidth") > 300
