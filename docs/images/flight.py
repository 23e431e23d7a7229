"""Films flight.gif: from the map of a whole book, 39,659 × 39,659 weights, down to one of them, in Chromium.

    python docs/images/flight.py                   what follows is handed to `regard view --book`

The head and the weight are those that the viewer's own question "How far back does a word look?" leads to.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Page, sync_playwright

TARGET = Path(__file__).with_suffix(".gif")
WINDOW = {"width": 1120, "height": 700}
WIDTH = 540  # pixels of the film
FRAMES, HOLD = 40, 14
CLOSE = 56.0  # pixels of a cell at the end: enough for its number
COLOURS = 48
SETTLED = "() => window.regard?.map?.settled() && window.regard.map.camera() !== null"


def main() -> None:
    """Serve the book, fly, and write the film."""
    command = [sys.executable, "-u", "-m", "regard", "view", "--book", "--no-open", *sys.argv[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as engine:
        try:
            browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            lines = (re.search(r"http://[^/\s]+", line) for line in server.stdout or ())
            address = next(found[0] for found in lines if found)
            page = browser.new_page(viewport=WINDOW, reduced_motion="reduce", color_scheme="light")
            frames = fly(page, address, question(page, address))
        finally:
            server.terminate()
    write(frames)
    print(f"{TARGET.name}: {len(frames)} frames, {TARGET.stat().st_size / 1e6:.2f} MB")


def question(page: Page, address: str) -> dict[str, int]:
    """Layer, head, query and key of the farthest look back, once the book has been read."""
    while httpx.get(f"{address}/api/info", timeout=None).status_code != 200:
        page.wait_for_timeout(500)
    book = httpx.get(f"{address}/api/recordings", timeout=None).json()["default"]
    path = f"{address}/api/recordings/{book}/stacks/decoder/questions"
    return httpx.get(path, timeout=None).json()["farthest"]


def fly(page: Page, address: str, to: dict[str, int]) -> list[Image.Image]:
    """Every frame: the cell moves to the middle of the screen as the map grows around it."""
    page.goto(f"{address}/#/map?layer={to['layer']}&head={to['head']}")
    rest(page)
    start = page.evaluate("window.regard.map.camera()")
    page.goto(f"{page.url.split('&query')[0]}&query={to['query']}&key={to['key']}")
    rest(page)
    aside = [(to[name] - start[axis]) * start["scale"] for name, axis in (("query", "y"), ("key", "x"))]
    frames = [shot(page)] * (HOLD // 2)
    for number in range(1, FRAMES + 1):
        share = number / FRAMES
        scale = start["scale"] * (CLOSE / start["scale"]) ** share
        query, key = (
            to[name] - offset * (1 - share) / scale
            for name, offset in zip(("query", "key"), aside, strict=True)
        )
        page.evaluate(f"window.regard.map.center({query}, {key}, {scale})")
        rest(page)
        frames.append(shot(page))
    return frames + [frames[-1]] * HOLD


def rest(page: Page) -> None:
    """Every tile is there, and the page has drawn it."""
    while not page.evaluate(SETTLED):
        page.wait_for_timeout(50)
    page.wait_for_timeout(120)


def shot(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.locator(".panes").screenshot(animations="disabled"))).convert("RGB")


def write(frames: list[Image.Image]) -> None:
    """One palette for the whole film, so that what stays the same is stored once."""
    height = round(WIDTH * frames[0].height / frames[0].width)
    small = [frame.resize((WIDTH, height), Image.Resampling.LANCZOS) for frame in frames]
    sheet = Image.new("RGB", (WIDTH * 3, height))
    for i, frame in enumerate((small[0], small[len(small) // 2], small[-1])):
        sheet.paste(frame, (WIDTH * i, 0))
    palette = sheet.quantize(COLOURS)
    film = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    film[0].save(TARGET, save_all=True, append_images=film[1:], duration=110, loop=0, optimize=True)


if __name__ == "__main__":
    main()
