"""Takes the pictures of the viewer in docs/images/viewer: `regard view` on the bundled story, in Chromium.

python docs/images/viewer.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parent / "viewer"
LAPTOP, PHONE = (1280, 800), (390, 844)
# Name, address, size of the screen, colours, what to press, what must be there before the picture is taken.
VIEWS = [
    ("map", "#/map?layer=6&head=3", LAPTOP, "light", None, None),
    ("map-dark", "#/map?layer=5&head=0", LAPTOP, "dark", None, None),
    ("text", "#/text?layer=6&head=3&query=1200", LAPTOP, "light", None, None),
    ("atlas", "#/atlas", LAPTOP, "light", None, "atlas-matrix"),
    ("steps", "#/steps?layer=5&head=5&query=60&step=weights", LAPTOP, "light", None, "step-words"),
    ("matter", "#/matter?layer=6&head=3&query=60&key=0", LAPTOP, "light", "block", "result"),
    ("try", "#/try", LAPTOP, "light", None, None),
    ("phone", "#/map?layer=6&head=3", PHONE, "light", None, None),
]


def main() -> None:
    """Serve, and take every picture."""
    FOLDER.mkdir(exist_ok=True)
    command = [sys.executable, "-u", "-m", "regard", "view", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as engine:
        try:
            browser = engine.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            lines = (re.search(r"http://\S+", line) for line in server.stdout or ())
            address = next(found[0] for found in lines if found)
            for name, view, size, colours, press, awaited in VIEWS:
                if sys.argv[1:] and name not in sys.argv[1:]:
                    continue
                page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=colours)
                page.goto(address + view)
                take(page, FOLDER / f"{name}.png", press, awaited)
                print(name, flush=True)
        finally:
            server.terminate()


def take(page: Page, path: Path, press: str | None, awaited: str | None) -> None:
    """One picture, when nothing is being fetched any more."""
    if press is not None:
        page.get_by_test_id(press).click(timeout=60_000)
    if awaited is not None:
        page.get_by_test_id(awaited).wait_for(timeout=120_000)
    for _ in range(3):
        page.wait_for_load_state("networkidle", timeout=60_000)
        page.wait_for_timeout(1500)
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main()
