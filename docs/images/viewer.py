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
LAPTOP = {"width": 1280, "height": 800}
# Name, address, colours.
VIEWS = [
    ("text", "#/text?layer=8&head=2&query=1200", "dark"),
    ("atlas", "#/atlas", "light"),
    ("steps", "#/steps?layer=5&head=5&query=60&step=weights", "light"),
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
            for name, view, colours in VIEWS:
                if sys.argv[1:] and name not in sys.argv[1:]:
                    continue
                page = browser.new_page(viewport=LAPTOP, color_scheme=colours)
                page.goto(address + view)
                take(page, FOLDER / f"{name}.png")
                print(name, flush=True)
        finally:
            server.terminate()


def take(page: Page, path: Path) -> None:
    """One picture, once the model is loaded and the view has had time to draw."""
    page.get_by_text("Questions to ask").wait_for(timeout=300_000)
    page.wait_for_timeout(20_000)
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main()
