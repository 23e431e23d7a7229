"""Views as files, and what is to be seen in a picture."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

__all__ = ["colours", "export"]


def export(page: Page, kind: str, folder: Path) -> Path:
    """Choose a kind of file in the menu; returns what was saved."""
    page.get_by_test_id("export").locator("summary").click()
    with page.expect_download() as caught:
        page.get_by_test_id(f"export-{kind}").click()
    target = folder / caught.value.suggested_filename
    caught.value.save_as(target)
    return target


def colours(picture: Path) -> list[float]:
    """The share of each colour of a picture, the commonest first; colours that nearly agree count as one."""
    with Image.open(picture) as opened:
        small = opened.convert("RGB").resize((200, 200)).quantize(64).convert("RGB")
    counts = sorted((count for count, _ in small.getcolors(200 * 200) or ()), reverse=True)
    return [count / sum(counts) for count in counts]
